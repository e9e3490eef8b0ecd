//! Byte planes: the first byte of each element, then the second of each, and so on. zstd finds more in them than in elements.

use crate::cluster::element::Element;
use crate::inline::{array, zip};

/// Appends the planes of elements of `width` bytes.
pub fn split(width: usize, elements: &[u8], out: &mut Vec<u8>) {
    match width {
        1 => out.extend_from_slice(elements),
        2 => split_as::<u16>(elements, out),
        4 => split_as::<u32>(elements, out),
        8 => split_as::<u64>(elements, out),
        _ => unreachable!("elements have 1, 2, 4 or 8 bytes"),
    }
}

/// Fills `out` with the elements of `width` bytes that have these planes.
pub fn merge(width: usize, planes: &[u8], out: &mut [u8]) {
    assert_eq!(planes.len(), out.len(), "planes of all elements");
    match width {
        1 => out.copy_from_slice(planes),
        2 => merge_as::<u16, 2>(planes, out),
        4 => merge_as::<u32, 4>(planes, out),
        8 => merge_as::<u64, 8>(planes, out),
        _ => unreachable!("elements have 1, 2, 4 or 8 bytes"),
    }
}

// Shifts of whole elements: unlike bytes that are some apart, compilers vectorise them.

fn split_as<E: Element>(elements: &[u8], out: &mut Vec<u8>) {
    let elements = E::all(elements);
    let (at, n) = (out.len(), elements.len());
    out.resize(at + E::BYTES * n, 0);
    for plane in 0..E::BYTES {
        let shift = 8 * plane as u32;
        zip(&mut out[at + plane * n..][..n], elements, |to, e| *to = E::from_bytes(*e).shr(shift).wide() as u8);
    }
}

fn merge_as<E: Element, const W: usize>(planes: &[u8], out: &mut [u8]) {
    let out = E::all_mut(out);
    let n = out.len();
    let planes: [&[u8]; W] = array(|plane| &planes[plane * n..][..n]);
    for (i, to) in out.iter_mut().enumerate() {
        let byte = |plane: usize| E::cut(planes[plane][i].into()).shl(8 * plane as u32);
        *to = (0..W).fold(E::default(), |e, plane| e.or(byte(plane))).to_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_come_back() {
        for width in [1, 2, 4, 8] {
            for n in [0, 1, 7, 1000] {
                let elements: Vec<u8> = (0..n * width).map(|i| (i * 31 + i / 256) as u8).collect();
                let mut planes = vec![];
                split(width, &elements, &mut planes);
                assert!((0..n * width).all(|i| planes[i % width * n + i / width] == elements[i]));
                let mut back = vec![0; elements.len()];
                merge(width, &planes, &mut back);
                assert_eq!(back, elements);
            }
        }
    }
}
