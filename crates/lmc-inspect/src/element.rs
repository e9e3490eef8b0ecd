//! Elements of one, two, four or eight bytes as integers of 64 bits.

/// The bits of an element of `WIDTH` bytes; higher bits are zero.
#[inline(always)]
pub(crate) fn load<const WIDTH: usize>(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..WIDTH].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

/// An element as a signed integer.
#[inline(always)]
pub(crate) fn signed<const WIDTH: usize>(element: u64) -> i64 {
    let above = 64 - 8 * WIDTH as u32;
    ((element << above) as i64) >> above
}

/// A float's bits as an integer that counts the values below it.
#[inline(always)]
pub(crate) fn ordered<const WIDTH: usize>(float: u64) -> i64 {
    let bits = signed::<WIDTH>(float);
    // Magnitudes of negative numbers count down.
    bits ^ (((bits >> 63) as u64) >> (65 - 8 * WIDTH)) as i64
}

/// Calls a generic function for the width of elements in bytes.
macro_rules! with_width {
    ($width:expr, $f:ident($($arg:expr),*)) => {
        match $width {
            1 => $f::<1>($($arg),*),
            2 => $f::<2>($($arg),*),
            4 => $f::<4>($($arg),*),
            8 => $f::<8>($($arg),*),
            width => unreachable!("no dtype has elements of {width} bytes"),
        }
    };
}
pub(crate) use with_width;
