//! Writes the directories in which slime, miles, SGLang's branch and ModelExpress exchange versions of weights: `docs/interchange.md` has
//! the format. A version is a full checkpoint, or the changes since another one.

mod encoding;
mod export;
mod index;
mod model;
mod shards;

pub use self::export::{Exported, Interchange, InterchangeOptions};
