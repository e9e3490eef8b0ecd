//! The `.lmc` container: header, records, index, trailer; writers and readers of it.

pub(crate) mod record;
