//! Odd but valid files, files that lie, and every file that the format allows.

use proptest::prelude::*;

use super::*;

/// The start of a file: length and header, as the format has them.
fn head(json: &str) -> Vec<u8> {
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(json.as_bytes());
    file
}

/// Reads a file of this header and `data_len` bytes of data, the way a caller does.
fn read(json: &str, data_len: u64) -> Result<Header, HeaderError> {
    let (file, limits) = (head(json), HeaderLimits::default());
    let file_len = file.len() as u64 + data_len;
    let (prefix, rest) = file.split_first_chunk().unwrap();
    let len = header_len(*prefix, file_len, &limits)?;
    Header::parse(&rest[..len], file_len, &limits)
}

fn places(header: &Header) -> Vec<(&str, u64, u64)> {
    let place = |tensor: &Tensor| (tensor.offset - header.data_offset, tensor.len);
    header.tensors.iter().map(|tensor| (tensor.name.as_str(), place(tensor).0, place(tensor).1)).collect()
}

/// `odd.safetensors`: header order is not data order, an empty tensor, one without dimensions, two FP8 types.
const ODD: &str = concat!(
    r#"{"__metadata__":{"format":"pt","step":"10"},"#,
    r#""o":{"dtype":"BOOL","shape":[3],"data_offsets":[556,559]},"#,
    r#""k":{"dtype":"F8_E5M2","shape":[256],"data_offsets":[276,532]},"#,
    r#""b":{"dtype":"BF16","shape":[8],"data_offsets":[0,16]},"#,
    r#""e":{"dtype":"F16","shape":[0,4],"data_offsets":[20,20]},"#,
    r#""i":{"dtype":"I64","shape":[3],"data_offsets":[532,556]},"#,
    r#""s":{"dtype":"F32","shape":[],"data_offsets":[16,20]},"#,
    r#""q":{"dtype":"F8_E4M3","shape":[256],"data_offsets":[20,276]}}   "#,
);

#[test]
fn the_odd_file_lists_seven_tensors_in_the_order_of_the_data() {
    let header = read(ODD, 559).unwrap();
    assert_eq!(
        places(&header),
        [("b", 0, 16), ("s", 16, 4), ("e", 20, 0), ("q", 20, 256), ("k", 276, 256), ("i", 532, 24), ("o", 556, 3)]
    );
    assert!(header.tensors[1].shape.is_empty());
    assert_eq!((&header.tensors[2].shape[..], &header.tensors[3].dtype), (&[0, 4][..], &Dtype::F8E4m3));
    assert_eq!(header.metadata["step"], "10");
}

#[test]
fn the_header_need_not_end_at_a_multiple_of_eight() {
    let trimmed = ODD.trim_end();
    assert_ne!(trimmed.len() % 8, 0);
    let header = read(trimmed, 559).unwrap();
    assert_eq!(header.data_offset, 8 + trimmed.len() as u64);
    assert_eq!(header.tensors[0].offset, header.data_offset);
}

#[test]
fn a_file_without_tensors_is_whole() {
    let header = read("{}      ", 0).unwrap();
    assert_eq!((header.tensors, header.metadata, header.data_offset), (vec![], BTreeMap::new(), 16));
}

#[test]
fn a_type_not_known_keeps_its_name_and_its_length() {
    let header = read(r#"{"w":{"dtype":"F4","shape":[2,2],"data_offsets":[0,2]}}"#, 2).unwrap();
    assert_eq!(header.tensors[0].dtype, Dtype::Other("F4".into()));
    assert_eq!(places(&header), [("w", 0, 2)]);
}

#[test]
fn bytes_of_no_tensor_are_allowed() {
    let json = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[3,4]},"more":{"dtype":"U8","shape":[1],"data_offsets":[8,9],"x":[{}]}}"#;
    assert_eq!(places(&read(json, 100).unwrap()), [("a", 3, 1), ("more", 8, 1)]);
}

#[test]
fn a_header_above_the_limit_is_named_before_it_is_read() {
    // The file of 1.29 million tensors.
    let (len, file_len) = (112_715_768, 114_005_776);
    let error = header_len(u64::to_le_bytes(len), file_len, &HeaderLimits::default()).unwrap_err();
    assert!(matches!(error, HeaderError::HeaderTooLarge { len: 112_715_768, max: 33_554_432 }));

    let limits = HeaderLimits { tensors_max: 6, ..HeaderLimits::default() };
    let file_len = 8 + ODD.len() as u64 + 559;
    let error = Header::parse(ODD.as_bytes(), file_len, &limits).unwrap_err();
    assert!(matches!(error, HeaderError::TooManyTensors { max: 6 }));
}

#[test]
fn other_files_are_not_mistaken_for_one() {
    let zip = *b"PK\x03\x04\x14\0\0\0";
    assert!(matches!(
        header_len(zip, 1 << 20, &HeaderLimits::default()),
        Err(HeaderError::HeaderBeyondFile { file_len: 1_048_576, .. })
    ));
    assert!(header_len(1_u64.to_le_bytes(), 3, &HeaderLimits::default()).is_err());
    for json in ["", "[]", "{} x", r#"{"w":{}}"#, r#"{"__metadata__":{"n":1}}"#, r#"{"w":"#] {
        assert!(matches!(read(json, 0), Err(HeaderError::Json(_))), "{json}");
    }
    let shape = vec!["1"; DIMENSIONS_MAX + 1].join(",");
    let json = format!(r#"{{"w":{{"dtype":"U8","shape":[{shape}],"data_offsets":[0,1]}}}}"#);
    assert!(matches!(read(&json, 1), Err(HeaderError::Json(_))));
}

#[test]
fn a_header_that_lies_is_refused() {
    let tensor = |name: &str, dtype: &str, shape: &str, begin: u64, end: u64| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
    };
    let refused = |tensors: &[String]| read(&format!("{{{}}}", tensors.join(",")), 8).unwrap_err();

    let error = refused(&[tensor("w", "U8", "[9]", 0, 9)]);
    assert!(matches!(error, HeaderError::OutOfRange { begin: 0, end: 9, data_len: 8, .. }));
    let error = refused(&[tensor("w", "U8", "[1]", 1, 0)]);
    assert!(matches!(error, HeaderError::OutOfRange { .. }));
    let error = refused(&[tensor("w", "F32", "[2]", 0, 4)]);
    assert!(matches!(error, HeaderError::WrongLength { len: 4, expected: Some(8), .. }));
    let error = refused(&[tensor("w", "F32", "[18446744073709551615,2]", 0, 4)]);
    assert!(matches!(error, HeaderError::WrongLength { expected: None, .. }));
    let error = refused(&[tensor("a", "U8", "[5]", 0, 5), tensor("b", "U8", "[4]", 4, 8)]);
    assert!(matches!(error, HeaderError::Overlap { left, right } if left == "a" && right == "b"));
    let error = refused(&[tensor("w", "U8", "[1]", 0, 1), tensor("w", "U8", "[1]", 1, 2)]);
    assert!(matches!(error, HeaderError::DuplicateName { name } if name == "w"));
}

#[test]
fn an_empty_tensor_may_stand_inside_another() {
    let json = r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"e":{"dtype":"F64","shape":[18446744073709551615,18446744073709551615,0],"data_offsets":[4,4]}}"#;
    assert_eq!(places(&read(json, 8).unwrap()), [("a", 0, 8), ("e", 4, 0)]);
}

proptest! {
    #[test]
    fn any_valid_file_is_listed_in_full(
        parts in proptest::collection::btree_map("[a-z.\"\\\\é]{0,6}", (0_usize..6, 0_u64..9, 0_u64..4), 0..12),
        order in any::<proptest::sample::Index>(),
        spaces in 0_usize..9,
    ) {
        let types = ["F64", "BF16", "U8", "I32", "BOOL", "F8_E4M3"];
        let (mut members, mut expected, mut end) = (Vec::new(), Vec::new(), 0);
        for (name, (dtype, elements, gap)) in &parts {
            let dtype = Dtype::from_name(types[*dtype]);
            let (begin, len) = (end + gap, elements * dtype.element_bytes().unwrap());
            end = begin + len;
            let info = serde_json::json!({ "dtype": dtype.name(), "shape": [elements], "data_offsets": [begin, end] });
            members.push(format!("{}:{info}", serde_json::Value::from(name.as_str())));
            expected.push((name.as_str(), begin, len));
        }
        if !members.is_empty() {
            let middle = order.index(members.len());
            members.rotate_left(middle);
        }
        let header = read(&format!("{{{}}}{}", members.join(","), " ".repeat(spaces)), end).unwrap();
        expected.sort_by_key(|&(name, begin, len)| (begin, len, name));
        prop_assert_eq!(places(&header), expected);
    }

    #[test]
    fn damaged_headers_never_panic_and_never_overlap(flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6), data_len in 0_u64..600) {
        let mut json = ODD.as_bytes().to_vec();
        for (place, byte) in flips {
            let place = place.index(json.len());
            json[place] = byte;
        }
        let file_len = 8 + json.len() as u64 + data_len;
        if let Ok(header) = Header::parse(&json, file_len, &HeaderLimits::default()) {
            let filled: Vec<_> = header.tensors.iter().filter(|tensor| tensor.len > 0).collect();
            prop_assert!(filled.windows(2).all(|pair| pair[0].offset + pair[0].len <= pair[1].offset));
            prop_assert!(header.tensors.iter().all(|tensor| tensor.offset + tensor.len <= file_len));
        }
    }
}
