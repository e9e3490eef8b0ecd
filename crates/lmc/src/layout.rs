//! Where tensors are: in files of safetensors, PyTorch, NumPy, GGUF and ONNX, and in checkpoints of several files.
//!
//! ```
//! let mut raw = b"\x35\0\0\0\0\0\0\0".to_vec();
//! raw.extend(br#"{"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#);
//! raw.extend([1, 2, 3]);
//! let base = lmc::Base::new(&raw[..])?;
//! let tensors = lmc::layout::tensors(&raw, base.layout(), base.segments(), "")?;
//! assert_eq!((&tensors.found[0].name[..], tensors.found[0].elements.offset), ("w", 61));
//! assert!(tensors.is_complete());
//! let longer = [&raw[..], &[4]].concat();
//! let base = lmc::Base::new(&longer[..])?;
//! let tensors = lmc::layout::tensors(&longer, base.layout(), base.segments(), "")?;
//! assert!(tensors.missing[0].why.starts_with("no tensor has the bytes 64 to 65"));
//! # Ok::<(), lmc::Error>(())
//! ```

#[doc(hidden)]
pub use lmc_layout::declared;
pub use lmc_layout::dtype::NamedDtype;
pub use lmc_layout::segment::{Name, Shape, tensor_len};
pub use lmc_layout::{Missing, TensorView, Tensors, distcp, safetensors, tensors};
