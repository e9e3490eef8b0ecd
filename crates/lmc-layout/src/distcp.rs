//! Checkpoints of `torch.distributed.checkpoint`: directories with a file `.metadata`, which lists the chunks of each
//! tensor, and data files that hold the chunks. Nothing is unpickled.

pub use super::torch::checkpoint::{Chunk, Elements, Metadata, Place, Stored, Tensor};
