//! The arguments of `lmc unpack`.

use std::path::PathBuf;

use clap::Args;

use crate::ui::format::parse_size;
use crate::work::args::Threads;
use crate::work::bases::BaseArgs;

/// Write the tensors of checkpoints as safetensors files.
///
/// A file may be compressed or not, and of any format whose tensors lmc finds: torch.save, .distcp, npy, npz, GGUF, ONNX, safetensors.
/// Nothing in it is unpickled or run, and one that ends before its tensors do is an error. DIR/NAME.safetensors holds the tensors of NAME.pt
/// or NAME.pt.lmc. Those that torch.save wrote are there under each of their names, also if several have the same elements, and in the order
/// of their elements.
///
/// A directory is a checkpoint of torch.distributed.checkpoint, with its .metadata, as PyTorch's own writer writes it; its data
/// files may be compressed. The chunks of each tensor are joined: DIR/model.safetensors holds whole tensors, or several files and their
/// index do.
#[derive(Args)]
pub(crate) struct UnpackArgs {
    /// Files of tensors, compressed or not; directories of torch.distributed.checkpoint.
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,

    /// The directory to write to, created if it is missing.
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: PathBuf,

    /// Only tensors whose names begin with PREFIX, without it: model. for the weights of a training state.
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(super) prefix: String,

    /// The tensors of a directory are written to several files if they have more bytes than SIZE: by default 5G. With k, M, G, Ki, Mi or Gi.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "5G", hide_default_value = true)]
    pub(super) max_shard_size: usize,

    /// Overwrite existing files.
    #[arg(short, long)]
    pub(super) force: bool,

    #[command(flatten)]
    pub(super) bases: BaseArgs,

    #[command(flatten)]
    pub(super) threads: Threads,
}
