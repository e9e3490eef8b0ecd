//! Errors as C gets them: a number, and a text that the thread keeps.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use lmc::ErrorKind;

/// An error: its number in `lmc.h`, and its text.
pub(crate) struct Failure {
    number: c_int,
    text: String,
}

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        lmc::Error::usage(text).into()
    }

    /// The text with the file before it.
    pub(crate) fn of(path: &std::path::Path, error: impl Into<Self>) -> Self {
        let Self { number, text } = error.into();
        Self { number, text: format!("{}: {text}", path.display()) }
    }
}

impl From<lmc::Error> for Failure {
    fn from(error: lmc::Error) -> Self {
        let number = match error.kind() {
            ErrorKind::Damaged => 1,
            ErrorKind::Unsupported => 2,
            ErrorKind::Limit => 3,
            ErrorKind::Base => 4,
            ErrorKind::Io => 5,
            ErrorKind::Usage => 6,
            _ => 7,
        };
        Self { number, text: error.to_string() }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self { number: 5, text: error.to_string() }
    }
}

thread_local! {
    /// The text of the last error.
    static LAST: RefCell<CString> = RefCell::default();
}

/// The pointer is valid until the thread's next error.
pub(crate) fn last() -> *const std::ffi::c_char {
    LAST.with_borrow(|text| CStr::as_ptr(text))
}

/// Runs what a function of the interface does, and returns what it returns to C.
pub(crate) fn status(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // After a panic, what was read from is whole: readers lock only their caches, whose poisoned locks are errors again.
    let done = catch_unwind(AssertUnwindSafe(call));
    let failed = match done {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let why = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Failure { number: 7, text: format!("lmc has a defect: {}", why.unwrap_or("it panicked")) }
        }
    };
    let text = CString::new(failed.text.replace('\0', "\\0")).unwrap_or_default();
    LAST.set(text);
    failed.number
}
