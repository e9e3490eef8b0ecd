//! Ending an operation before it is complete.

use std::fmt;

use crate::error::Result;

/// Whether an operation goes on: it asks at times that its options name, and ends with the error that it gets. By
/// default it is never asked.
#[derive(Clone, Copy, Default)]
pub struct Cancel<'a>(Option<&'a (dyn Fn() -> Result<()> + Sync)>);

impl<'a> Cancel<'a> {
    /// Asks `check`.
    pub fn new(check: &'a (dyn Fn() -> Result<()> + Sync)) -> Self {
        Self(Some(check))
    }

    pub(crate) fn check(self) -> Result<()> {
        self.0.map_or(Ok(()), |check| check())
    }
}

impl fmt::Debug for Cancel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.0.is_some()).finish()
    }
}
