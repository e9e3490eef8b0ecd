//! What a tensor is for in a training state, by its name.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What a tensor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Weights, and whatever else has a name.
    Weights,
    /// A copy of the weights that the optimizer updates.
    Master,
    /// The optimizer's mean of gradients.
    ExpAvg,
    /// The optimizer's mean of squared gradients.
    ExpAvgSq,
}

/// Words of names of second and first moments, and of copies of weights.
const SECOND: &[&str] = &["exp_avg_sq", "exp_avg_sqs", "moment2", "second_moment", "variance", "nu"];
const FIRST: &[&str] = &["exp_avg", "exp_avgs", "moment1", "first_moment", "momentum", "momentum_buffer", "mu"];
const COPIES: &[&str] = &["master", "fp32_param", "fp32_params", "fp32_flat_groups", "single_fp32", "main_param"];
/// Words that models have, too, such as a layer `mu` of an autoencoder.
const AMBIGUOUS: &[&str] = &["variance", "nu", "momentum", "mu"];
const WRAPPERS: &[&str] = &["model", "module", "optim", "optimizer", "state"];
/// Components of the names of optimizers, their files and directories.
const OPTIMIZERS: &[&str] = &[
    "opt_state",
    "optim",
    "optim_state",
    "optim_states",
    "optimizer",
    "optimizer_state",
    "optimizer_state_dict",
    "optimizer_states",
    "optimizers",
];

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !(c.is_alphanumeric() || c == '_'))
}

/// What the tensor with a name is for.
pub fn role(name: &str) -> Role {
    let name = name.to_lowercase();
    let one_of = |list: &[&str]| words(&name).any(|w| list.contains(&w));
    let starts = |start: &str| words(&name).any(|w| w.starts_with(start));
    if one_of(SECOND) || starts("exp_avg_sq") {
        Role::ExpAvgSq
    } else if one_of(FIRST) || starts("exp_avg") {
        Role::ExpAvg
    } else if one_of(COPIES) || starts("master_") || starts("fp32_from") {
        Role::Master
    } else {
        Role::Weights
    }
}

/// The common part of the names of a parameter's tensors: without wrappers and the words that state their purpose.
pub fn parameter(name: &str) -> String {
    let says = |w: &&str| [SECOND, FIRST, COPIES, WRAPPERS].iter().any(|list| list.contains(w));
    words(name).filter(|w| !w.is_empty() && !says(w)).collect::<Vec<_>>().join(".")
}

/// The parameter that each tensor belongs to, of those with these names and shapes. PyTorch's optimizers number their states, in the order
/// of the model's tensors within each group of parameters: where states have numbers, and weights names, the states of a shape are those of
/// the weights of that shape, in their order, if there are as many.
pub fn parameters<'a>(tensors: impl IntoIterator<Item = (&'a str, &'a [u64])>) -> Vec<String> {
    let tensors: Vec<(&str, &[u64])> = tensors.into_iter().collect();
    let mut names: Vec<String> = tensors.iter().map(|(name, _)| parameter(name)).collect();
    let mut states: BTreeMap<&[u64], BTreeSet<u64>> = BTreeMap::new();
    let mut named: HashSet<String> = HashSet::new();
    let mut weights: BTreeMap<&[u64], Vec<usize>> = BTreeMap::new();
    for (i, &(name, shape)) in tensors.iter().enumerate() {
        match (role(name), names[i].parse()) {
            (Role::ExpAvgSq, Ok(number)) => _ = states.entry(shape).or_default().insert(number),
            (Role::ExpAvgSq, Err(_)) => _ = named.insert(names[i].clone()),
            (Role::Weights | Role::Master, Err(_)) => weights.entry(shape).or_default().push(i),
            _ => {}
        }
    }
    for (shape, numbers) in states {
        let mut of_shape = weights.remove(shape).unwrap_or_default();
        of_shape.retain(|&i| !named.contains(&names[i]));
        if of_shape.len() == numbers.len() {
            of_shape.iter().zip(numbers).for_each(|(&i, number)| names[i] = number.to_string());
        }
    }
    names
}

/// Whether a tensor, or a file, belongs to an optimizer by its name, and cannot be the model's. Copies of weights belong to one only if the
/// name says so otherwise: they may be all there is.
pub fn is_of_optimizer(name: &str) -> bool {
    let is_moment = |w: &str| [SECOND, FIRST].iter().any(|list| list.contains(&w)) && !AMBIGUOUS.contains(&w);
    let belongs = |w: &str| {
        let of_optimizer = OPTIMIZERS.contains(&w) || w.starts_with("optimizer_") || w.ends_with("_optim_states");
        of_optimizer || is_moment(w) || w.starts_with("exp_avg")
    };
    words(&name.to_lowercase()).any(belongs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell() {
        for (name, expected) in [
            ("model.layers.3.mlp.up_proj.weight", Role::Weights),
            ("master.embed.weight", Role::Master),
            ("optimizer.state.exp_avg.model.norm.weight", Role::ExpAvg),
            ("optimizer.state.exp_avg_sq.model.norm.weight", Role::ExpAvgSq),
            ("state/0/exp_avg_sq", Role::ExpAvgSq),
            ("opt_state/0/mu/params/w", Role::ExpAvg),
            ("opt_state/0/nu/params/w", Role::ExpAvgSq),
            ("menu.kernel", Role::Weights),
            ("", Role::Weights),
        ] {
            assert_eq!(role(name), expected, "{name}");
        }
        for name in [
            "model.layers.0.w",
            "optimizer.state.exp_avg_sq.layers.0.w",
            "optim/state/layers.0.w/exp_avg",
            "master.layers.0.w",
        ] {
            assert_eq!(parameter(name), "layers.0.w", "{name}");
        }
    }

    #[test]
    fn numbered_states_are_those_of_the_weights_of_their_shapes() {
        let (large, small, other): (&[u64], &[u64], &[u64]) = (&[3, 4], &[4], &[5]);
        let of = |tensors: &[(&'static str, &'static [u64])]| parameters(tensors.iter().copied());
        let tensors = [
            ("model.b", small),
            ("model.z.w", large),
            ("model.a.w", large),
            ("model.buffer", other),
            ("optimizer.state.10.exp_avg_sq", large),
            ("optimizer.state.10.exp_avg", large),
            ("optimizer.state.9.exp_avg_sq", large),
            ("optimizer.state.11.exp_avg_sq", small),
        ];
        assert_eq!(of(&tensors), ["11", "9", "10", "buffer", "10", "10", "9", "11"]);
        // One weight more than states: which one has none?
        assert_eq!(of(&[tensors[1], tensors[2], tensors[4]]), ["z.w", "a.w", "10"]);
        // States with names are those of the weights with these.
        let named = [tensors[1], ("exp_avg_sq.z.w", large), tensors[2], tensors[4]];
        assert_eq!(of(&named), ["z.w", "z.w", "10", "10"]);
    }

    #[test]
    fn optimizers_are_told_from_models() {
        for name in [
            "exp_avg.blocks.1.w",
            "state.0.exp_avg_sq",
            "state/0/exp_avg_sq_row",
            "optimizer.state.layers.0.w.step",
            "opt_state/0/mu/params/w",
            "optim.param_groups.w.lr",
            "momentum_buffer.w",
            "optimizer.pt",
            "optimizer_0/__0_0.distcp",
            "global_step100/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
        ] {
            assert!(is_of_optimizer(name), "{name}");
        }
        for name in [
            "model.safetensors",
            "vae.mu.weight",
            "nu.weight",
            "batch_norm.momentum",
            "optimal.weight",
            "opt-125m/model.safetensors",
            "master.layers.0.w",
            "model.layers.0.w",
            "global_step100/mp_rank_00_model_states.pt",
            "",
        ] {
            assert!(!is_of_optimizer(name), "{name}");
        }
    }
}
