//! Byte grouping for codecs that know nothing of elements: all first bytes of a dtype's elements, then all second
//! bytes, and so on.

use std::ops::Range;
use std::rc::Rc;

/// Pieces of a sample.
const PIECES: usize = 16;
/// Bytes of a piece at least, so that it has whole elements.
const PIECE_MIN: usize = 16;

/// A range of a file whose elements have one width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) bytes: Range<usize>,
    pub(crate) width: usize,
}

/// Merges neighbours of one width. Fills gaps up to `len` with single bytes, as it does ranges that do not divide into
/// elements.
pub(crate) fn cover(len: usize, typed: impl IntoIterator<Item = Run>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut push = |bytes: Range<usize>, width: usize| match runs.last_mut() {
        _ if bytes.is_empty() => {}
        Some(last) if last.width == width && last.bytes.end == bytes.start => last.bytes.end = bytes.end,
        _ => runs.push(Run { bytes, width }),
    };
    let mut at = 0;
    for run in typed {
        push(at..run.bytes.start, 1);
        let whole = run.bytes.len() - run.bytes.len() % run.width;
        push(run.bytes.start..run.bytes.start + whole, run.width);
        push(run.bytes.start + whole..run.bytes.end, 1);
        at = run.bytes.end;
    }
    push(at..len, 1);
    runs
}

/// The runs of some pieces of a file. Elements stay whole.
pub(crate) fn sample(runs: &[Run], pieces: &[Range<usize>]) -> Vec<Run> {
    let in_piece = |piece: &Range<usize>, run: &Run| {
        let from = run.bytes.start + piece.start.saturating_sub(run.bytes.start).next_multiple_of(run.width);
        let to = run.bytes.end.min(piece.end);
        let len = to.saturating_sub(from);
        (len >= run.width).then(|| Run { bytes: from..from + len - len % run.width, width: run.width })
    };
    pieces.iter().flat_map(|piece| runs.iter().filter_map(move |run| in_piece(piece, run))).collect()
}

/// Runs as they lie once their bytes are joined.
pub(crate) fn joined(runs: &[Run]) -> Vec<Run> {
    let mut at = 0;
    let moved = runs.iter().map(|run| {
        at += run.bytes.len();
        Run { bytes: at - run.bytes.len()..at, width: run.width }
    });
    let moved: Vec<Run> = moved.collect();
    cover(at, moved)
}

/// Evenly spread pieces of about `wanted` of `total` bytes, in which the runs of a sample are.
pub(crate) fn spread(total: usize, wanted: usize) -> Vec<Range<usize>> {
    let piece = (wanted / PIECES).max(PIECE_MIN).min(total);
    let pieces = (total / piece).clamp(1, PIECES);
    (0..pieces).map(|i| (total - piece) / (pieces - 1).max(1) * i).map(|start| start..start + piece).collect()
}

/// The bytes of these runs, joined.
pub(crate) fn taken(of: &[u8], runs: &[Run]) -> Rc<[u8]> {
    runs.iter().flat_map(|r| &of[r.bytes.clone()]).copied().collect()
}

/// The order in which byte grouping puts the bytes of a file.
#[derive(Clone, Debug)]
pub(crate) struct Planes {
    runs: Vec<Run>,
    /// For each width 1, 2, 4, 8: where its planes start, and bytes of one plane.
    places: [(usize, usize); 4],
    len: usize,
}

impl Planes {
    pub(crate) fn new(runs: &[Run]) -> Self {
        let mut places = [(0, 0); 4];
        let mut at = 0;
        for (log2, place) in places.iter_mut().enumerate() {
            let width = 1 << log2;
            let total: usize = runs.iter().filter(|r| r.width == width).map(|r| r.bytes.len()).sum();
            *place = (at, total / width);
            at += total;
        }
        Self { runs: runs.to_vec(), places, len: at }
    }

    /// Whether grouping moves any byte.
    pub(crate) fn is_identity(&self) -> bool {
        self.runs.iter().all(|r| r.width == 1)
    }

    /// Writes the bytes of `raw` into `grouped`, which has the same length, in plane order.
    pub(crate) fn split(&self, raw: &[u8], grouped: &mut [u8]) {
        assert!(raw.len() == self.len && grouped.len() == self.len);
        self.each(|run, planes, from| match run.width {
            1 => grouped[planes.0 + from..][..run.bytes.len()].copy_from_slice(&raw[run.bytes.clone()]),
            2 => split::<2>(&raw[run.bytes.clone()], grouped, planes, from),
            4 => split::<4>(&raw[run.bytes.clone()], grouped, planes, from),
            _ => split::<8>(&raw[run.bytes.clone()], grouped, planes, from),
        });
    }

    /// The inverse of [`Planes::split`].
    pub(crate) fn merge(&self, grouped: &[u8], raw: &mut [u8]) {
        assert!(raw.len() == self.len && grouped.len() == self.len);
        self.each(|run, planes, from| match run.width {
            1 => raw[run.bytes.clone()].copy_from_slice(&grouped[planes.0 + from..][..run.bytes.len()]),
            2 => merge::<2>(grouped, &mut raw[run.bytes.clone()], planes, from),
            4 => merge::<4>(grouped, &mut raw[run.bytes.clone()], planes, from),
            _ => merge::<8>(grouped, &mut raw[run.bytes.clone()], planes, from),
        });
    }

    /// Calls `f` with each run, the place of its width's planes, and the element of them at which the run starts.
    fn each(&self, mut f: impl FnMut(&Run, (usize, usize), usize)) {
        let mut done = [0usize; 4];
        for run in &self.runs {
            let log2 = run.width.trailing_zeros() as usize;
            f(run, self.places[log2], done[log2]);
            done[log2] += run.bytes.len() / run.width;
        }
    }
}

fn split<const W: usize>(raw: &[u8], grouped: &mut [u8], (base, plane_len): (usize, usize), from: usize) {
    let elements = raw.as_chunks::<W>().0;
    for (p, plane) in grouped[base..][..plane_len * W].chunks_exact_mut(plane_len).enumerate() {
        for (byte, element) in plane[from..][..elements.len()].iter_mut().zip(elements) {
            *byte = element[p];
        }
    }
}

fn merge<const W: usize>(grouped: &[u8], raw: &mut [u8], (base, plane_len): (usize, usize), from: usize) {
    let elements = raw.as_chunks_mut::<W>().0;
    let planes: [&[u8]; W] =
        std::array::from_fn(|p| &grouped[base + p * plane_len..][..plane_len][from..][..elements.len()]);
    for (i, element) in elements.iter_mut().enumerate() {
        *element = std::array::from_fn(|p| planes[p][i]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 37 + i / 256) as u8).collect()
    }

    #[test]
    fn planes_of_one_width_stand_together() {
        let raw = [9, 1, 2, 3, 4, 7, 5, 6];
        let runs = cover(8, [Run { bytes: 1..5, width: 2 }, Run { bytes: 6..8, width: 2 }]);
        let mut grouped = [0; 8];
        Planes::new(&runs).split(&raw, &mut grouped);
        assert_eq!(grouped, [9, 7, 1, 3, 5, 2, 4, 6]);
    }

    #[test]
    fn grouping_is_undone() {
        let raw = bytes(1000);
        for typed in [
            vec![],
            vec![Run { bytes: 3..999, width: 4 }],
            vec![Run { bytes: 0..10, width: 8 }, Run { bytes: 10..403, width: 2 }, Run { bytes: 500..900, width: 8 }],
        ] {
            let planes = Planes::new(&cover(raw.len(), typed));
            let (mut grouped, mut back) = (vec![0; raw.len()], vec![0; raw.len()]);
            planes.split(&raw, &mut grouped);
            planes.merge(&grouped, &mut back);
            assert_eq!(back, raw);
            assert_eq!(grouped == raw, planes.is_identity());
        }
    }

    #[test]
    fn cover_has_no_gaps_and_merges() {
        let runs = cover(20, [Run { bytes: 2..6, width: 2 }, Run { bytes: 6..13, width: 2 }]);
        let want = [(0..2, 1), (2..12, 2), (12..20, 1)].map(|(bytes, width)| Run { bytes, width });
        assert_eq!(runs, want);
    }

    #[test]
    fn samples_keep_elements_whole() {
        let raw: Vec<u8> = (0..4000u32).flat_map(|i| i.to_le_bytes()).collect();
        let runs = cover(raw.len() + 3, [Run { bytes: 3..raw.len() + 3, width: 4 }]);
        let raw = [vec![0xee; 3], raw].concat();
        let pieces: Vec<Range<usize>> = (0..7).map(|i| 2000 * i..2000 * i + 142).collect();
        let taken = sample(&runs, &pieces);
        let part: Vec<u8> = taken.iter().flat_map(|r| &raw[r.bytes.clone()]).copied().collect();
        assert!(part.len() <= 1000 && part.len() > 900);
        for run in joined(&taken).iter().filter(|r| r.width == 4) {
            for e in part[run.bytes.clone()].as_chunks::<4>().0 {
                assert!(u32::from_le_bytes(*e) < 4000);
            }
        }
    }
}
