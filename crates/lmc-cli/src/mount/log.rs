//! Messages of a file system, which has no caller to tell.

use std::collections::HashSet;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// The most messages that are remembered.
const REMEMBERED: usize = 10_000;

/// Where messages go: each is one line, and is said once, however often what it is about is read.
pub(crate) struct Log {
    said: Mutex<HashSet<String>>,
    /// Instead of standard error.
    file: Option<File>,
}

impl Log {
    pub(crate) fn new(file: Option<File>) -> Self {
        Self { said: Mutex::default(), file }
    }

    pub(crate) fn say(&self, message: impl Display) {
        let message = message.to_string();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= REMEMBERED {
            said.clear();
        }
        let line = format!("lmc: {message}\n");
        if said.insert(message) {
            // Where the log cannot be written, nothing can be reported.
            let _ = match self.file.as_ref() {
                Some(mut file) => file.write_all(line.as_bytes()),
                None => std::io::stderr().write_all(line.as_bytes()),
            };
        }
    }
}
