//! Advice to the system about memory.

#![allow(unsafe_code)]

/// Memory of at least this size uses huge pages: faulting in small pages takes longer than decoding into them.
const LARGE: usize = 4 << 20;

/// Advises the kernel to use huge pages for large memory that is about to be overwritten. Contents do not change, and errors are ignored.
pub(crate) fn expect_writes(memory: &mut [u8]) {
    #[cfg(target_os = "linux")]
    if memory.len() >= LARGE {
        // Whole pages only: partial ones are shared with other memory.
        const HUGE: usize = 2 << 20;
        let head = memory.as_ptr().align_offset(HUGE);
        let whole = memory.len().saturating_sub(head) / HUGE * HUGE;
        if let Some(inner) = memory.get_mut(head..).and_then(|rest| rest.get_mut(..whole)) {
            // SAFETY: the pages are within `inner`, which is borrowed; the advice changes neither their contents nor
            // their protection.
            unsafe { libc::madvise(inner.as_mut_ptr().cast(), inner.len(), libc::MADV_HUGEPAGE) };
        }
    }
}
