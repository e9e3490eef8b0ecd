//! The files that `docs/format.md` shows byte by byte.

use lmc_testing::decoders::agree_with_bases;
use std::fs;

/// The bytes of the `n`-th dump of the page: lines of an offset, bytes in hexadecimal, and a comment.
fn dump(n: usize) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    let page = fs::read_to_string(path).expect("the page is there");
    let (_, examples) = page.split_once("\n## 10. Examples\n").expect("the page has examples");
    let dump = examples.split("```\n").nth(2 * n + 1).expect("there is such a dump");
    let mut bytes = Vec::new();
    for line in dump.lines() {
        let (offset, rest) = line.split_once("  ").expect("an offset");
        assert_eq!(usize::from_str_radix(offset, 16), Ok(bytes.len()), "{line}");
        let (hex, _) = rest.split_once("  ").unwrap_or((rest, ""));
        bytes.extend(hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("two digits")));
    }
    bytes
}

#[test]
fn dumps_decode_to_what_the_page_says() {
    let mut elements: [u16; 8] = [0x3f80, 0xbf80, 0x3f00, 0xbf00, 0x3f00, 0x3f80, 0x3f80, 0x3f00];
    let bytes = |elements: &[u16]| elements.iter().flat_map(|e| e.to_le_bytes()).collect::<Vec<u8>>();
    let base = bytes(&elements);
    assert_eq!(agree_with_bases(&dump(0), &[]).as_ref(), Ok(&base));
    elements[5] += 1;
    assert_eq!(agree_with_bases(&dump(1), &[&base]), Ok(bytes(&elements)));
}
