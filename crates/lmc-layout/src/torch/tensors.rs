//! Tensors in a pickle: calls of the functions that torch rebuilds them with, and the path to them through
//! dictionaries, lists and objects.

use std::collections::HashMap;

use super::super::pickle::{Id, Pickle, Value};
use super::super::strided::{self, is_contiguous};
use super::super::suggestion::MAX_COST;
use crate::dtype::Dtype;
use crate::segment::{MAX_RANK, Segment, Shape};

/// A tensor: a view of a storage.
pub(super) struct View<'a> {
    /// The type of the storage's elements; `None` if it has none and torch has no name for that of the tensor's.
    pub(super) elements: Option<Elements>,
    /// First element in the storage.
    pub(super) first: u64,
    pub(super) shape: Shape,
    /// How many elements of the storage it is from one index to the next, in each dimension.
    pub(super) strides: Shape,
    /// The keys that lead to it, `.` between them; empty for a tensor that is all of the pickle, `None` if the path is
    /// too long.
    pub(super) path: Option<String>,
    /// The key of its storage.
    pub(super) key: &'a str,
    /// The bytes of its storage, as the pickle says it; `None` if it does not.
    pub(super) stored: Option<u64>,
    /// Why its elements are not those of the storage, if they are not.
    pub(super) odd: Option<&'static str>,
    /// The attributes of the tensor itself, of each class that wraps it.
    states: Vec<Id>,
}

impl View<'_> {
    /// Whether its elements are those of the storage from the first one on, in order.
    pub(super) fn is_contiguous(&self) -> bool {
        is_contiguous(&self.shape, &self.strides)
    }

    /// Where its elements, of `width` bytes, are: its storage has the second number of bytes, from the first one on. `None` if it ends
    /// before they do.
    pub(super) fn elements_in(&self, storage: (u64, u64), width: u64) -> Option<strided::Elements> {
        strided::Elements::of_storage(storage, width, self.first, &self.shape, &self.strides)
    }
}

/// A tensor that is no view of a storage, and whose elements are elsewhere or otherwise.
const NOT_PLAIN: &str = "it is quantised, sparse, a conjugate or otherwise not a plain tensor";
const NUMPY: &str = "it is an array of numpy, not a plain tensor: torch keeps its elements in the pickle, as text";
const STORAGE: &str = "it is a storage, not a plain tensor";

/// How the elements of a storage are coded: each is `count` of a dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elements {
    pub(super) dtype: Dtype,
    pub(super) count: u64,
}

impl Elements {
    /// Bytes of one element; `None` if it has no whole number of them.
    pub(super) fn len(self) -> Option<u64> {
        let bits = u64::from(self.dtype.bits()) * self.count;
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// The shape of a tensor in elements of the dtype. Those of FP4 are pairs in the last dimension; others get a dimension.
    pub(super) fn shape(self, dims: &[u64]) -> Option<Shape> {
        match (self, dims.split_last()) {
            (Self { count: 1, .. }, _) => Some(dims.into()),
            (Self { dtype: Dtype::F4, count }, Some((last, rest))) => {
                let last = last.checked_mul(count)?;
                Some(rest.iter().copied().chain([last]).collect())
            }
            (Self { count, .. }, _) => Some(dims.iter().copied().chain([count]).collect()),
        }
    }

    /// The dtype and the shape that safetensors has for such a tensor; `None` if it has none.
    pub(super) fn in_safetensors(self, dims: &[u64]) -> Option<(Dtype, Shape)> {
        let is_one = self.count == 1 || (self.dtype == Dtype::F4 && !dims.is_empty());
        is_one.then(|| Some((self.dtype, self.shape(dims)?)))?
    }
}

/// Most bytes of a storage's key.
const MAX_KEY: usize = 64;
/// Most steps and bytes of a path that becomes a name.
const MAX_STEPS: usize = 64;
const MAX_NAME: usize = 1024;
/// Attributes that hold tensors of the object itself: modules, and tensors of `torch.distributed`.
const HIDDEN: [&str; 4] = ["_parameters", "_buffers", "_modules", "_local_tensor"];

/// A storage: its key, and the tensors that view it.
type Viewed<'a> = (&'a str, Vec<View<'a>>);

/// The storages of a pickle, in the order of the first tensors that view them. `None` if there are too many tensors.
pub(super) fn by_storage<'a>(pickle: &Pickle<'a>) -> Option<Vec<Viewed<'a>>> {
    let (mut storages, mut places) = (Vec::<Viewed<'_>>::new(), HashMap::new());
    let mut left = MAX_COST;
    Walk::new(pickle, false).run(|view| {
        left = left.checked_sub(Segment::cost(view.path.as_ref().map_or(0, String::len), 2 * view.shape.len()))?;
        let place = *places.entry(view.key).or_insert(storages.len());
        if place == storages.len() {
            storages.push((view.key, vec![]));
        }
        storages[place].1.push(view);
        Some(())
    })?;
    Some(storages)
}

/// Calls `found` with each tensor of a pickle as often as paths lead to it, as long as it returns `Some`: also with those that are no views of
/// a storage. `None` if that ends it, or if there are too many paths.
pub(super) fn by_path<'a>(pickle: &Pickle<'a>, found: impl FnMut(View<'a>) -> Option<()>) -> Option<()> {
    Walk::new(pickle, true).run(found)
}

/// Most steps on all paths to values, if each path counts.
const MAX_PATHS: usize = 1 << 23;
/// Instead of a step, where all values below one were gone through.
const LEAVE: u32 = u32::MAX;

/// A step on the path to a value.
#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Number(i64),
    /// One that names do not show.
    None,
}

/// Goes through all values of a pickle, each of them once, or once on each path.
struct Walk<'p, 'a> {
    pickle: &'p Pickle<'a>,
    /// Whether each path counts. A path has no value twice.
    all_paths: bool,
    /// Values that were gone through, or that are on the path.
    seen: Vec<bool>,
    /// Steps, and the one before each.
    steps: Vec<(u32, Step<'a>)>,
    /// Values to go to, the next one last, by the last step to them.
    next: Vec<(Id, u32)>,
    /// How many steps may follow.
    left: usize,
}

impl<'p, 'a> Walk<'p, 'a> {
    fn new(pickle: &'p Pickle<'a>, all_paths: bool) -> Self {
        let seen = vec![false; pickle.len()];
        let left = if all_paths { MAX_PATHS } else { usize::MAX };
        Self { pickle, all_paths, seen, steps: vec![(LEAVE, Step::None)], next: vec![(pickle.root, 0)], left }
    }

    /// Calls `found` with each tensor, as long as it returns `Some`.
    fn run(mut self, mut found: impl FnMut(View<'a>) -> Option<()>) -> Option<()> {
        let pickle = self.pickle;
        while let Some((id, way)) = self.next.pop() {
            if way == LEAVE {
                self.seen[id as usize] = false;
                continue;
            }
            if self.left == 0 {
                return None;
            }
            if std::mem::replace(&mut self.seen[id as usize], true) {
                continue;
            }
            if self.all_paths {
                self.next.push((id, LEAVE));
            }
            let from = self.next.len();
            if let Some(mut view) = view(pickle, id).or_else(|| self.all_paths.then(|| not_plain(pickle, id))?) {
                view.path = self.path(way);
                self.next.extend(view.states.iter().map(|&state| (state, way)));
                self.left = self.left.saturating_sub(1);
                found(view)?;
                continue;
            }
            match pickle.get(id) {
                Value::List(_) | Value::Tuple(..) => self.numbered(pickle.sequence(id).unwrap_or_default(), way),
                Value::Dict(items) => self.keyed(items, way),
                Value::Object { args, .. } => {
                    if let Some(changes) = pickle.changes(id) {
                        self.keyed(&changes.items, way);
                        self.numbered(&changes.elements, way);
                        self.next.extend(changes.state.map(|state| (state, way)));
                        self.left = self.left.saturating_sub(1);
                    }
                    // Many objects may have the same ones.
                    if self.all_paths || !std::mem::replace(&mut self.seen[*args as usize], true) {
                        let args = pickle.sequence(*args).unwrap_or_default();
                        args.iter().for_each(|&value| self.step(value, way, Step::None));
                    }
                }
                _ => {}
            }
            // The first one is the next.
            self.next[from..].reverse();
        }
        Some(())
    }

    fn step(&mut self, value: Id, way: u32, step: Step<'a>) {
        self.left = self.left.saturating_sub(1);
        if self.seen[value as usize] || matches!(self.pickle.get(value), Value::Other | Value::Int(_) | Value::Str(_)) {
            return;
        }
        // A list may be longer than all paths that are gone through: `run` ends at the next value.
        if self.steps.len() >= MAX_PATHS {
            self.left = 0;
            self.next.push((value, way));
            return;
        }
        let way = match step {
            Step::None => way,
            step => {
                self.steps.push((way, step));
                self.steps.len() as u32 - 1
            }
        };
        self.next.push((value, way));
    }

    fn numbered(&mut self, values: &[Id], way: u32) {
        values.iter().zip(0..).for_each(|(&value, number)| self.step(value, way, Step::Number(number)));
    }

    fn keyed(&mut self, items: &[(Id, Id)], way: u32) {
        for &(key, value) in items {
            let step = match *self.pickle.get(key) {
                Value::Str(key) if HIDDEN.contains(&key) => Step::None,
                Value::Str(key) => Step::Key(key),
                Value::Int(number) => Step::Number(number),
                _ => Step::None,
            };
            self.step(value, way, step);
        }
    }

    /// The name of the value that a path leads to.
    fn path(&self, mut way: u32) -> Option<String> {
        let (mut steps, mut len) = (Vec::new(), 0);
        while way != 0 {
            let (before, step) = self.steps[way as usize];
            let step = match step {
                Step::Key(key) if key.len() <= MAX_NAME => key.to_owned(),
                Step::Key(_) => return None,
                Step::Number(number) => number.to_string(),
                Step::None => String::new(),
            };
            len += step.len();
            steps.push(step);
            if steps.len() > MAX_STEPS || len > MAX_NAME {
                return None;
            }
            way = before;
        }
        steps.reverse();
        Some(steps.join("."))
    }
}

/// The tensor that a value is.
fn view<'a>(pickle: &Pickle<'a>, id: Id) -> Option<View<'a>> {
    let &Value::Object { mut callable, mut args } = pickle.get(id) else { return None };
    let mut states = Vec::new();
    // A parameter of a subclass of a subclass is the deepest one.
    for _ in 0..4 {
        let given = pickle.sequence(args)?;
        match pickle.global(callable)? {
            ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => {
                states.extend(given.get(3));
                let Value::Object { callable: of, args: with } = *pickle.get(*given.first()?) else { return None };
                (callable, args) = (of, with);
            }
            ("torch._tensor", "_rebuild_from_type_v2") => {
                states.extend(given.get(3));
                (callable, args) = (*given.first()?, *given.get(2)?);
            }
            ("torch._utils", function) => return Some(View { states, ..tensor(pickle, function, given)? }),
            _ => return None,
        }
    }
    None
}

/// What has elements and is no view of a storage: a sparse tensor, an array of numpy, a storage alone. Tensors that are made from others are
/// not among them: the others are found.
fn not_plain<'a>(pickle: &Pickle<'a>, id: Id) -> Option<View<'a>> {
    let odd = match *pickle.get(id) {
        Value::Persistent(_) => STORAGE,
        Value::Object { callable, .. } => match pickle.global(callable)? {
            ("torch._utils", function) => match function.strip_prefix("_rebuild_")? {
                "parameter" | "parameter_with_state" | "wrapper_subclass" | "device_tensor_from_cpu_tensor" => {
                    return None;
                }
                _ => NOT_PLAIN,
            },
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct")
            | ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer") => NUMPY,
            ("torch.storage", "_load_from_bytes") => STORAGE,
            _ => return None,
        },
        _ => return None,
    };
    let (shape, strides, states) = Default::default();
    Some(View { elements: None, first: 0, shape, strides, path: None, key: "", stored: None, odd: Some(odd), states })
}

/// The tensor that a function rebuilds from its arguments.
fn tensor<'a>(pickle: &Pickle<'a>, function: &str, args: &[Id]) -> Option<View<'a>> {
    let named = match function {
        "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_qtensor" => None,
        "_rebuild_tensor_v3" => Some(pickle.global(*args.get(6)?)?),
        _ => return None,
    };
    let &[storage, first, shape, strides, ..] = args else { return None };
    let (class, key, more) = persistent(pickle, storage)?;
    let elements = match named {
        Some(("torch", dtype)) => elements_of_dtype(dtype),
        Some(_) => None,
        None => elements_of_storage(class),
    };
    // Many tensors may have the same ones.
    let sizes = |id| {
        pickle
            .sequence(id)
            .filter(|sizes| sizes.len() < MAX_RANK)?
            .iter()
            .map(|&n| pickle.size(n))
            .collect::<Option<Vec<u64>>>()
    };
    let (shape, strides) = (sizes(shape)?, sizes(strides)?);
    if shape.len() != strides.len() {
        return None;
    }
    let first = pickle.size(first)?;
    let (shape, strides) = (shape[..].into(), strides[..].into());
    // Conjugates and negatives have a dictionary that says so, storages that view others in old files a tuple.
    let changed = args.get(if named.is_some() { 7 } else { 6 });
    let is_plain = function != "_rebuild_qtensor"
        && !changed.is_some_and(|&id| matches!(pickle.get(id), Value::Dict(items) if !items.is_empty()))
        && !more.get(2).is_some_and(|&id| matches!(pickle.get(id), Value::Tuple(..)));
    let stored = more.get(1).and_then(|&count| pickle.size(count)?.checked_mul(width_of_storage(class)?));
    let odd = (!is_plain).then_some(NOT_PLAIN);
    Some(View { elements, first, shape, strides, path: None, key, stored, odd, states: Vec::new() })
}

/// The class and the key of a storage, and what its pickle says besides: where it was, and its number of elements.
fn persistent<'p, 'a>(pickle: &'p Pickle<'a>, storage: Id) -> Option<(&'a str, &'a str, &'p [Id])> {
    let Value::Persistent(storage) = *pickle.get(storage) else { return None };
    let &[tag, class, key, ref more @ ..] = pickle.sequence(storage)? else { return None };
    let key = pickle.str(key).filter(|key| key.len() <= MAX_KEY)?;
    (pickle.str(tag)? == "storage").then_some((pickle.global(class)?.1, key, more))
}

/// The bytes of an element of each storage, by their keys, as files of the old format count them: also of storages that no tensor views.
pub(super) fn widths<'a>(pickle: &Pickle<'a>) -> HashMap<&'a str, Option<u64>> {
    let storages = (0..pickle.len() as Id).filter_map(|id| persistent(pickle, id));
    storages.map(|(class, key, _)| (key, width_of_storage(class))).collect()
}

/// The bytes of what a class of storages counts.
fn width_of_storage(class: &str) -> Option<u64> {
    match class {
        "UntypedStorage" => Some(1),
        class => elements_of_storage(class)?.len(),
    }
}

/// The elements of a typed storage, by the name of its class.
fn elements_of_storage(class: &str) -> Option<Elements> {
    elements_of_dtype(match class.strip_suffix("Storage")? {
        "Double" => "float64",
        "Float" => "float32",
        "Half" => "float16",
        "BFloat16" => "bfloat16",
        "Long" => "int64",
        "Int" | "QInt32" => "int32",
        "Short" => "int16",
        "Char" | "QInt8" => "int8",
        "Byte" | "QUInt8" | "QUInt4x2" | "QUInt2x4" => "uint8",
        "Bool" => "bool",
        "ComplexFloat" => "complex64",
        "ComplexDouble" => "complex128",
        _ => return None,
    })
}

/// The elements that torch calls by this name.
pub(super) fn elements_of_dtype(name: &str) -> Option<Elements> {
    let (dtype, count) = match name {
        "float64" => (Dtype::F64, 1),
        "float32" => (Dtype::F32, 1),
        "float16" => (Dtype::F16, 1),
        "bfloat16" => (Dtype::Bf16, 1),
        "int64" => (Dtype::I64, 1),
        "int32" => (Dtype::I32, 1),
        "int16" => (Dtype::I16, 1),
        "int8" => (Dtype::I8, 1),
        "uint64" => (Dtype::U64, 1),
        "uint32" => (Dtype::U32, 1),
        "uint16" => (Dtype::U16, 1),
        "uint8" => (Dtype::U8, 1),
        "bool" => (Dtype::Bool, 1),
        "complex64" => (Dtype::C64, 1),
        // As `torch.view_as_real` shows them.
        "complex128" => (Dtype::F64, 2),
        "complex32" => (Dtype::F16, 2),
        "float8_e4m3fn" => (Dtype::F8E4M3, 1),
        "float8_e5m2" => (Dtype::F8E5M2, 1),
        "float8_e4m3fnuz" => (Dtype::F8E4M3Fnuz, 1),
        "float8_e5m2fnuz" => (Dtype::F8E5M2Fnuz, 1),
        "float8_e8m0fnu" => (Dtype::F8E8M0, 1),
        "float4_e2m1fn_x2" => (Dtype::F4, 2),
        _ => return None,
    };
    Some(Elements { dtype, count })
}
