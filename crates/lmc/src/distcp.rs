//! Checkpoints of `torch.distributed.checkpoint`: directories with a file `.metadata`, which says of which chunks each tensor is made, and
//! data files that hold them. Nothing is unpickled.

pub use crate::layout::torch::checkpoint::{Chunk, Elements, Metadata, Place, Stored, Tensor};
