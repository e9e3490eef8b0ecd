//! The purpose of a tensor, by its name.

use lmc_layout::roles::Role;
use lmc_layout::roles::role;
use serde::Serialize;

/// The purpose of a tensor, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// Weights of layers, and whatever else has a name and numbers.
    Weights,
    /// Embeddings, and the output layer that may be tied to them.
    Embedding,
    /// Scales and offsets of normalisation layers.
    Norm,
    /// Copies of the weights that the optimizer updates.
    Master,
    /// The optimizer's mean of gradients.
    ExpAvg,
    /// The optimizer's mean of squared gradients.
    ExpAvgSq,
    /// Bytes of no tensor: headers, pickles, gaps.
    Other,
}

const EMBEDDINGS: &[&str] = &["embed", "wte", "wpe", "lm_head", "token_embd", "position_embd"];

impl Kind {
    /// All, in the order in which they are shown.
    pub const ALL: [Kind; 7] =
        [Kind::Weights, Kind::Embedding, Kind::Norm, Kind::Master, Kind::ExpAvg, Kind::ExpAvgSq, Kind::Other];

    /// The kind of the tensor with a name.
    pub(crate) fn of(name: Option<&str>) -> Self {
        let Some(name) = name else { return Kind::Other };
        let name = name.to_lowercase();
        let words = || name.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        match role(&name) {
            Role::ExpAvgSq => Kind::ExpAvgSq,
            Role::ExpAvg => Kind::ExpAvg,
            Role::Master => Kind::Master,
            Role::Weights if words().any(|w| w.contains("norm") || is_ln(w)) => Kind::Norm,
            Role::Weights if words().any(|w| EMBEDDINGS.contains(&w) || w.contains("embed")) => Kind::Embedding,
            Role::Weights => Kind::Weights,
        }
    }

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Weights => "weights",
            Kind::Embedding => "embedding",
            Kind::Norm => "norm",
            Kind::Master => "master",
            Kind::ExpAvg => "exp_avg",
            Kind::ExpAvgSq => "exp_avg_sq",
            Kind::Other => "other",
        }
    }
}

/// `ln`, `ln1`, `ln_f` and so on.
fn is_ln(word: &str) -> bool {
    word.strip_prefix("ln")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(|c: char| c == '_' || c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell() {
        for (name, kind) in [
            ("model.layers.3.mlp.up_proj.weight", Kind::Weights),
            ("model.layers.3.input_layernorm.weight", Kind::Norm),
            ("transformer.h.0.ln_1.bias", Kind::Norm),
            ("blocks.0.ln2.weight", Kind::Norm),
            ("blk.0.attn_norm.weight", Kind::Norm),
            ("model.embed_tokens.weight", Kind::Embedding),
            ("transformer.wte.weight", Kind::Embedding),
            ("lm_head.weight", Kind::Embedding),
            ("token_embd.weight", Kind::Embedding),
            ("master.embed.weight", Kind::Master),
            ("optimizer.state.exp_avg.model.norm.weight", Kind::ExpAvg),
            ("optimizer.state.exp_avg_sq.model.norm.weight", Kind::ExpAvgSq),
            ("state/0/exp_avg_sq", Kind::ExpAvgSq),
            ("opt_state/0/mu/params/w", Kind::ExpAvg),
            ("opt_state/0/nu/params/w", Kind::ExpAvgSq),
            ("menu.kernel", Kind::Weights),
            ("lnear", Kind::Weights),
            ("", Kind::Weights),
        ] {
            assert_eq!(Kind::of(Some(name)), kind, "{name}");
        }
        assert_eq!(Kind::of(None), Kind::Other);
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
