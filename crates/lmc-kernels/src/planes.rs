//! Byte planes: the first byte of each element, then the second of each, and so on. zstd finds more in them than in elements.

/// Appends the planes of elements of `width` bytes.
pub fn split(width: usize, elements: &[u8], out: &mut Vec<u8>) {
    match width {
        1 => out.extend_from_slice(elements),
        2 => split_as::<2>(elements, out),
        4 => split_as::<4>(elements, out),
        8 => split_as::<8>(elements, out),
        _ => unreachable!("elements have 1, 2, 4 or 8 bytes"),
    }
}

/// Fills `out` with the elements of `width` bytes that have these planes.
pub fn merge(width: usize, planes: &[u8], out: &mut [u8]) {
    assert_eq!(planes.len(), out.len(), "planes of all elements");
    match width {
        1 => out.copy_from_slice(planes),
        2 => merge_as::<2>(planes, out),
        4 => merge_as::<4>(planes, out),
        8 => merge_as::<8>(planes, out),
        _ => unreachable!("elements have 1, 2, 4 or 8 bytes"),
    }
}

fn split_as<const W: usize>(elements: &[u8], out: &mut Vec<u8>) {
    let elements = elements.as_chunks::<W>().0;
    for plane in 0..W {
        out.extend(elements.iter().map(|e| e[plane]));
    }
}

fn merge_as<const W: usize>(planes: &[u8], out: &mut [u8]) {
    let out = out.as_chunks_mut::<W>().0;
    for (plane, bytes) in planes.chunks_exact(out.len().max(1)).enumerate() {
        out.iter_mut().zip(bytes).for_each(|(e, b)| e[plane] = *b);
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
