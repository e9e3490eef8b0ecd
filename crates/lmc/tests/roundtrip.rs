//! Every way in and every way out gives the same bytes.

mod support;

use lmc::{CompressOptions, Dtype};
use support::{check_all_paths, noise};

#[test]
fn sizes_around_every_boundary() {
    let leaf = 1 << 18;
    let mut sizes = vec![0, 1, 7, 63, 64, 65, 127, 128, 129];
    for n in [leaf, 2 * leaf, 4 * leaf, 5 * leaf, 9 * leaf] {
        sizes.extend([n - 1, n, n + 1]);
    }
    for size in sizes {
        let raw = noise(size, size as u64);
        for dtype in [None, Some(Dtype::Bf16), Some(Dtype::F6E2M3), Some(Dtype::F64)] {
            let mut o = CompressOptions::default();
            o.dtype = dtype;
            check_all_paths(&raw, &o);
        }
    }
}
