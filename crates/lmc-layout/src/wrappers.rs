//! Names of tensors without the wrappers that trainers put around a model: `module.model.layers.0.w` and `layers.0.w` name one tensor.

use std::borrow::Cow;
use std::collections::HashMap;

/// Components that wrap a whole model, or the dictionary that holds it: they are wrappers at the front of a name only.
const FRONT: [&str; 5] = ["model", "module", "state_dict", "model_state_dict", "base_model"];
/// Components that PyTorch and DeepSpeed put around any module: `torch.compile`, FSDP, activation checkpointing, the engine.
const ANYWHERE: [&str; 4] = ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"];

/// A tensor's name without wrappers: "norm.weight" of "module._orig_mod.model.norm.weight". The last component stays, whatever
/// it is.
pub fn without_wrappers(name: &str) -> Cow<'_, str> {
    let mut rest = name;
    while let Some((first, after)) = rest.split_once('.').filter(|(_, after)| !after.is_empty()) {
        if !FRONT.contains(&first) && !ANYWHERE.contains(&first) {
            break;
        }
        rest = after;
    }
    // They all begin with this, and few names have it.
    if !rest.contains("._") {
        return rest.into();
    }
    let last = rest.rfind('.').map_or(0, |dot| dot + 1);
    let (inner, last) = rest.split_at(last);
    let kept = |component: &&str| !ANYWHERE.contains(&component.trim_end_matches('.'));
    let mut short: String = inner.split_inclusive('.').filter(kept).collect();
    short.push_str(last);
    match short.len() == rest.len() {
        true => rest.into(),
        false => short.into(),
    }
}

/// The only item of each name without wrappers; `None` if there are several.
pub struct Unwrapped<'n>(HashMap<Cow<'n, str>, Option<usize>>);

impl<'n> Unwrapped<'n> {
    /// Names with the numbers of their items.
    pub fn new(names: impl Iterator<Item = (&'n str, usize)>) -> Self {
        let mut all = HashMap::new();
        for (name, i) in names {
            all.entry(without_wrappers(name)).and_modify(|one| *one = None).or_insert(Some(i));
        }
        Self(all)
    }

    /// The only one of a name, given without wrappers.
    pub fn get(&self, name: &str) -> Option<usize> {
        *self.0.get(name)?
    }

    /// The names that are unambiguous, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().filter_map(|(name, i)| Some((&**name, (*i)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_stripped() {
        for name in [
            "layers.0.w",
            "model.layers.0.w",
            "module.model.layers.0.w",
            "_orig_mod.layers.0.w",
            "_fsdp_wrapped_module._orig_mod.layers.0.w",
            "_forward_module.module.layers.0.w",
            "base_model.model.model.layers.0.w",
            "state_dict.layers.0.w",
            "model_state_dict.model.layers.0.w",
            "model.layers._fsdp_wrapped_module.0.w",
            "layers.0._checkpoint_wrapped_module.w",
            "model.layers.0._fsdp_wrapped_module._checkpoint_wrapped_module._orig_mod.w",
        ] {
            assert_eq!(without_wrappers(name), "layers.0.w", "{name}");
        }
    }

    #[test]
    fn what_is_no_wrapper_stays() {
        for name in [
            "",
            ".",
            "..",
            "w",
            "model",
            "model.",
            "_orig_mod",
            "a.model.w",
            "a.module.b",
            "models.w",
            "model_.w",
            "a._orig_mod",
            "a._b.c",
            "a._orig_mods.b",
            "ä._b",
            "._b.c",
        ] {
            assert_eq!(without_wrappers(name), name);
            assert!(matches!(without_wrappers(name), Cow::Borrowed(_)), "{name}: nothing is allocated");
        }
        assert_eq!(without_wrappers("model.model"), "model");
        assert_eq!(without_wrappers("module._orig_mod"), "_orig_mod");
    }

    #[test]
    fn ambiguous_names_are_not_found() {
        let names = ["model.a", "module.b", "b", "c", "model.c", "module.c"];
        let unwrapped = Unwrapped::new(names.into_iter().zip(0..));
        assert_eq!(["a", "b", "c", "model.a"].map(|n| unwrapped.get(n)), [Some(0), None, None, None]);
        assert_eq!(unwrapped.iter().collect::<Vec<_>>(), [("a", 0)]);
    }
}
