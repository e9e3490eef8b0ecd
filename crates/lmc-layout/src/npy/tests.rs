use super::*;
use crate::segment::MAX_RANK;

/// A file with this header and `data` bytes behind it.
fn file(version: u8, text: &str, data: usize) -> Vec<u8> {
    let mut file = [MAGIC, &[version, 0]].concat();
    match version {
        1 => file.extend((text.len() as u16).to_le_bytes()),
        _ => file.extend((text.len() as u32).to_le_bytes()),
    }
    file.extend(text.bytes().chain(std::iter::repeat_n(7, data)));
    file
}

/// Dtype, shape, offset and length of the array.
fn array(file: &[u8]) -> Option<(String, Vec<u64>, u64, u64)> {
    let layout = Npy.suggest(&mut &file[..]).expect("memory can be read")?;
    if layout.segments.is_empty() {
        return None;
    }
    let [header, tensor] = &layout.segments[..] else { panic!("a header and an array") };
    assert_eq!((header.offset, header.end(), header.dtype), (0, tensor.offset, None));
    assert_eq!(tensor.name.as_deref(), Some(""));
    Some((tensor.dtype?.to_string(), tensor.shape.to_vec(), tensor.offset, tensor.len))
}

#[test]
fn every_version_and_order() {
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n";
    let end = text.len() as u64;
    assert_eq!(array(&file(1, text, 48)), Some(("F32".into(), vec![3, 4], 10 + end, 48)));
    for version in [2, 3] {
        assert_eq!(array(&file(version, text, 48)), Some(("F32".into(), vec![3, 4], 12 + end, 48)));
    }
    for version in [0, 4] {
        assert_eq!(array(&file(version, text, 48)), None);
    }
    let fortran = text.replace("False", "True");
    assert_eq!(array(&file(1, &fortran, 48)).map(|a| a.1), Some(vec![4, 3]));
}

#[test]
fn dtypes() {
    let of = |descr: &str| {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,)}}");
        array(&file(1, &text, 32)).map(|a| (a.0, a.3))
    };
    for (descr, name, len) in [
        ("|b1", "BOOL", 2),
        ("|u1", "U8", 2),
        ("|i1", "I8", 2),
        ("<u2", "U16", 4),
        ("<i2", "I16", 4),
        ("<u4", "U32", 8),
        ("<i4", "I32", 8),
        ("<u8", "U64", 16),
        ("<i8", "I64", 16),
        ("<f2", "F16", 4),
        ("<f4", "F32", 8),
        ("<f8", "F64", 16),
        ("<c8", "C64", 16),
        ("<V2", "BF16", 4),
        ("|V2", "BF16", 4),
        ("<f1", "F8_E5M2", 2),
        ("|V1", "V1", 2),
    ] {
        assert_eq!(of(descr), Some((name.to_string(), len)), "{descr}");
    }
    for descr in [">f4", "<c16", "|f4", "=f4", "|O", "<U3", "<M8[ns]", "<f16", "|V3", "", "<", "é"] {
        assert_eq!(of(descr), None, "{descr}");
    }
}

#[test]
fn literals_as_others_write_them() {
    for text in [
        "{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<f4\"}",
        " { 'shape' : ( 2L , ) , 'descr' : '<f4' , 'fortran_order' : False , } \n",
        "{'descr':'<f4','shape':(2,),'fortran_order':True}",
        "{'descr':'<f4','shape':(1, 2,),'fortran_order':False}",
    ] {
        assert_eq!(array(&file(1, text, 8)).map(|a| a.3), Some(8), "{text}");
    }
    let scalar = "{'descr': '<f4', 'fortran_order': False, 'shape': (), }";
    assert_eq!(array(&file(1, scalar, 4)).map(|a| (a.1, a.3)), Some((vec![], 4)));
    let empty = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9), }";
    assert_eq!(array(&file(1, empty, 0)).map(|a| (a.1, a.3)), Some((vec![0, 9], 0)));
}

#[test]
fn damaged_headers_are_refused() {
    let max = u64::MAX;
    let nines = "9".repeat(100);
    for text in [
        "",
        "{",
        "{}",
        "{'descr': '<f4', 'shape': (2,)}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': Falsey, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 2}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,",
        "{'descr': '<f4\", 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
        &format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({max},)}}"),
        &format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({max},)}}"),
        &format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({max}, {max}, 0)}}"),
        &format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({nines},)}}"),
        &format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({})}}", "1, ".repeat(MAX_RANK + 1)),
    ] {
        assert_eq!(array(&file(1, text, 8)), None, "{text}");
    }
    let long = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}}{}", " ".repeat(MAX_HEADER));
    assert_eq!(array(&file(2, &long, 8)), None);
}

#[test]
fn bytes_behind_the_array_are_opaque_and_a_cut_array_too() {
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
    let whole = file(1, text, 8);
    let dtypes = |total| {
        let layout = Npy.suggest(&mut &whole[..]).unwrap().unwrap();
        layout.covering(total).iter().map(|s| s.dtype).collect::<Vec<_>>()
    };
    let len = whole.len() as u64;
    assert_eq!(dtypes(len), [None, Some(Dtype::F32)]);
    assert_eq!(dtypes(len + 3), [None, Some(Dtype::F32), None]);
    assert_eq!(dtypes(len - 1), [None, None]);
}
