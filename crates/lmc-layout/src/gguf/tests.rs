use super::*;
use crate::dtype::Dtype;

/// Name, dtype, shape, offset and length of a tensor.
type Tensor = (String, String, Vec<u64>, u64, u64);

/// A file made field by field.
#[derive(Clone)]
struct File(Vec<u8>);

impl File {
    fn new(version: u32, tensors: u64, pairs: u64) -> Self {
        Self(MAGIC.to_vec()).u32(version).u64(tensors).u64(pairs)
    }
    fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
    fn text(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }
    fn alignment(self, alignment: u32) -> Self {
        self.text("general.alignment").u32(fields::U32).u32(alignment)
    }
    fn info(self, name: &str, dimensions: &[u64], kind: u32, offset: u64) -> Self {
        let start = self.text(name).u32(dimensions.len() as u32);
        dimensions.iter().fold(start, |file, &d| file.u64(d)).u32(kind).u64(offset)
    }
    /// Its tensors.
    fn tensors(&self) -> Option<Vec<Tensor>> {
        let layout = Gguf.suggest(&mut &self.0[..]).expect("memory can be read")?;
        let tensor =
            |s: &Segment| Some((s.name.as_deref()?.into(), s.dtype?.to_string(), s.shape.to_vec(), s.offset, s.len));
        Some(layout.segments.iter().filter_map(tensor).collect())
    }
}

#[test]
fn dimensions_are_reversed_and_blocks_counted() {
    for version in [2, 3] {
        let file = File::new(version, 3, 0).info("a", &[4, 3], 0, 0).info("b", &[64, 2], 8, 64).info("c", &[], 30, 224);
        let data = (file.0.len() as u64).next_multiple_of(32);
        let expected = [
            ("a".into(), "F32".into(), vec![3, 4], data, 48),
            ("b".into(), "Q8_0".into(), vec![2, 2], data + 64, 136),
            ("c".into(), "BF16".into(), vec![], data + 224, 2),
        ];
        assert_eq!(file.tensors().as_deref(), Some(&expected[..]));
    }
    for version in [0, 1, 4, 3 << 24] {
        assert_eq!(File::new(version, 1, 0).info("a", &[4], 0, 0).tensors(), None);
    }
}

#[test]
fn values_of_every_type_are_skipped() {
    let mut file = File::new(3, 1, 17);
    for (kind, width) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 1), (10, 8), (11, 8), (12, 8)] {
        file = file.text("scalar").u32(kind).bytes(&vec![1; width]);
    }
    file = file.text("string").u32(8).text("value");
    file = file.text("numbers").u32(9).u32(2).u64(3).bytes(&[0; 6]);
    file = file.text("strings").u32(9).u32(8).u64(2).text("x").text("");
    file = file.text("nested").u32(9).u32(9).u64(2).u32(0).u64(1).bytes(&[1]).u32(8).u64(1).text("y");
    file = file.text("empty").u32(9).u32(9).u64(0);
    let file = file.alignment(256).info("t", &[2], 1, 256);
    let data = (file.0.len() as u64).next_multiple_of(256);
    assert_eq!(file.tensors(), Some(vec![("t".into(), "F16".into(), vec![2], data + 256, 4)]));
}

#[test]
fn an_unknown_type_is_opaque() {
    let file = File::new(3, 2, 0).info("a", &[4, 3], 99, 0).info("b", &[5], 24, 96);
    assert_eq!(file.tensors().unwrap().iter().map(|t| &t.0[..]).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn damaged_headers_are_refused() {
    let one = || File::new(3, 1, 0);
    let max = u64::MAX;
    for (what, file) in [
        ("five dimensions", one().info("a", &[1; 5], 0, 0)),
        ("hostile rank", one().text("a").u32(u32::MAX)),
        ("half a block", one().info("a", &[33], 8, 0)),
        ("a block of no dimension", one().info("a", &[], 8, 0)),
        ("not aligned", one().info("a", &[4], 0, 4)),
        ("too many elements", one().info("a", &[max, max], 0, 0)),
        ("too long", one().info("a", &[max / 8], 28, 0)),
        ("far away", one().info("a", &[4], 0, max - 31)),
        ("overlap", File::new(3, 2, 0).info("a", &[9], 0, 0).info("b", &[9], 0, 32)),
        ("not UTF-8", one().u64(1).bytes(&[0xff]).u32(0).u32(0).u64(0)),
        ("alignment 0", File::new(3, 0, 1).alignment(0)),
        ("alignment 3", File::new(3, 0, 1).alignment(3)),
        ("alignment twice", File::new(3, 0, 2).alignment(64).alignment(64)),
        ("alignment of another type", File::new(3, 0, 1).text("general.alignment").u32(10).u64(64)),
        ("unknown value", File::new(3, 0, 1).text("k").u32(13).u64(0)),
        ("array of unknown values", File::new(3, 0, 1).text("k").u32(9).u32(13).u64(0)),
        ("hostile key", File::new(3, 0, 1).u64(max)),
        ("hostile count", File::new(3, 0, 1).text("k").u32(9).u32(12).u64(max)),
        ("hostile count of bytes", File::new(3, 0, 1).text("k").u32(9).u32(0).u64(max)),
        ("hostile count of strings", File::new(3, 0, 1).text("k").u32(9).u32(8).u64(max).bytes(&[0; 800])),
        ("hostile count of arrays", File::new(3, 0, 1).text("k").u32(9).u32(9).u64(max).bytes(&[0; 1200])),
        ("hostile pairs", File::new(3, 0, max)),
        ("hostile tensors", File::new(3, max, 0)),
        ("hostile tensors with bytes behind them", File::new(3, max, 0).bytes(&[0; 4096])),
    ] {
        assert_eq!(file.tensors(), None, "{what}");
    }
}

#[test]
fn arrays_nest_to_a_depth() {
    let nested = |depth: usize| {
        let file = (0..depth).fold(File::new(3, 0, 1).text("k").u32(9), |file, _| file.u32(9).u64(1));
        file.u32(0).u64(1).bytes(&[1]).tensors()
    };
    assert_eq!(nested(3), Some(vec![]));
    assert_eq!(nested(4), None);
    assert_eq!(nested(100_000), None);
}

#[test]
fn headers_are_read_up_to_a_limit() {
    let long = |n: usize| {
        let file = File::new(3, 1, 1).text("k").u32(9).u32(0).u64(n as u64).bytes(&vec![1; n]);
        file.info("t", &[4], 0, 0).tensors().map(|tensors| tensors.len())
    };
    assert_eq!(long(FIRST), Some(1));
    assert_eq!(long(GROWTH * FIRST), Some(1));
    assert_eq!(long(MAX_HEADER - 100), Some(1));
    assert_eq!(long(MAX_HEADER), None);
}

#[test]
fn tensors_take_bounded_memory() {
    // All that the longest header can have.
    let of_one = File::new(3, 1, 0).info("", &[0], 24, 0).0.len() - File::new(3, 0, 0).0.len();
    assert!(MAX_HEADER / of_one * Segment::cost(0, MAX_DIMENSIONS) <= MAX_COST);
}

#[test]
fn a_cut_file_has_the_tensors_that_it_holds() {
    let file = File::new(3, 2, 0).info("a", &[8], 0, 0).info("b", &[8], 0, 32);
    let layout = Gguf.suggest(&mut &file.0[..]).unwrap().unwrap();
    let data = layout.segments[0].end();
    let dtypes = |total| layout.covering(total).iter().map(|s| s.dtype).collect::<Vec<_>>();
    assert_eq!(dtypes(data + 64), [None, Some(Dtype::F32), Some(Dtype::F32)]);
    assert_eq!(dtypes(data + 63), [None, Some(Dtype::F32), None]);
    assert_eq!(dtypes(data - 1), [None]);
}
