//! Bounds of a pickle, checked before Python's unpickler gets it.
//!
//! The unpickler trusts a pickle with memory, time and the stack: it allocates the length that an opcode declares before
//! it checks that the data exists; it hashes keys, which recurses through tuples, visits a shared part as often as it is
//! reached, and is quadratic for keys with one hash; it copies a shared argument for each call. So its opcodes are run
//! here first, on the sizes of values. Accepted are opcodes that protocols 2 to 5 write for plain data and objects.

use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::work::detached;

/// How deep values may be nested.
const MAX_DEPTH: u8 = 64;
/// Values of which a key may be made, and keys that are no text: texts, and bytes, have hashes that nobody can foresee.
const MAX_KEY: u32 = 16;
const MAX_KEYS: u64 = 4096;
/// Bytes of the pickle for each value that is not a number, at least; and how often its bytes may be copied. Pickles of
/// less than some length may have more.
const VALUE_LEN: usize = 4;
const MAX_COPIES: u64 = 4;
const LITTLE: usize = 4096;

type Id = u32;

/// What counts of a value.
#[derive(Clone, Copy)]
struct Value {
    kind: Kind,
    /// Levels of values in it.
    depth: u8,
    /// Whether it is in another one, which has its depth: it may not change any more.
    is_part: bool,
    /// Whether its attributes are set.
    is_built: bool,
    /// Elements, items, or bytes; and those of its elements.
    len: u32,
    inner: u32,
    /// Values that are visited to hash it.
    nodes: u32,
    /// How many of its elements would be keys that are no texts; `NO_KEYS` if one cannot be a key.
    keys: u32,
    /// The first element of a tuple; where a text begins.
    first: u32,
}

const NO_KEYS: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A number, a boolean, or None.
    Plain,
    Text,
    Bytes,
    Tuple,
    List,
    Dict,
    Set,
    Frozen,
    /// A class or a function; `set` or `frozenset`; `MetadataIndex`.
    Class,
    SetClass,
    IndexClass,
    Object,
    /// A `MetadataIndex`: its stand-in checks that it is a key without harm.
    Index,
}

impl Value {
    const fn of(kind: Kind) -> Self {
        let (depth, len, nodes) = (0, 0, 1);
        Self { kind, depth, is_part: false, is_built: false, len, inner: 0, nodes, keys: 0, first: 0 }
    }

    /// How many keys that are no texts it would be; `NO_KEYS` if it cannot be one.
    fn as_key(&self) -> u32 {
        match self.kind {
            Kind::Text | Kind::Bytes | Kind::Index => 0,
            Kind::List | Kind::Dict | Kind::Set => NO_KEYS,
            _ if self.nodes > MAX_KEY => NO_KEYS,
            _ => 1,
        }
    }
}

/// Values that are shared, as they never change.
const PLAIN: Id = 0;
const EMPTY: Id = 1;

struct Machine<'a> {
    data: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: Vec<Id>,
    keys: u64,
    copied: u64,
}

type Step<T = ()> = Result<T, String>;

impl<'a> Machine<'a> {
    fn new(data: &'a [u8]) -> Self {
        let values = vec![Value::of(Kind::Plain), Value::of(Kind::Tuple)];
        let (stack, marks, memo) = Default::default();
        Self { data, at: 0, values, stack, marks, memo, keys: 0, copied: 0 }
    }

    /// Runs all opcodes.
    fn run(&mut self) -> Step {
        loop {
            let at = self.at;
            let opcode = *self.data.get(at).ok_or_else(|| format!("the pickle is truncated at byte {at}"))?;
            self.at += 1;
            if opcode == b'.' {
                return Ok(());
            }
            self.step(opcode, at)?;
        }
    }

    fn step(&mut self, opcode: u8, at: usize) -> Step {
        match opcode {
            // PROTO, FRAME.
            0x80 => drop(self.take(1, at)?),
            0x95 => drop(self.take(8, at)?),
            // None, booleans and numbers.
            b'N' | 0x88 | 0x89 => self.stack.push(PLAIN),
            b'K' => self.plain(1, at)?,
            b'M' => self.plain(2, at)?,
            b'J' => self.plain(4, at)?,
            b'G' => self.plain(8, at)?,
            // LONG1, LONG4: large ones are hashed slowly.
            0x8a | 0x8b => {
                let len = self.counted(if opcode == 0x8a { 1 } else { 4 }, at)?;
                if len <= 8 {
                    self.stack.push(PLAIN);
                } else {
                    self.push(Value { nodes: 1 + small(len / 64), ..Value::of(Kind::Plain) })?;
                }
            }
            // Texts, bytes.
            0x8c | b'C' => self.text(opcode, 1, at)?,
            b'X' | b'B' => self.text(opcode, 4, at)?,
            0x8d | 0x8e | 0x96 => self.text(opcode, 8, at)?,
            // The stack.
            b'(' => self.marks.push(self.stack.len()),
            b'0' if self.marks.last() == Some(&self.stack.len()) => _ = self.marks.pop(),
            b'0' => _ = self.pop()?,
            b'1' => _ = self.since_mark()?,
            b'2' => self.stack.push(self.top()?),
            // The memo.
            b'q' | b'r' => {
                let index = self.number(if opcode == b'q' { 1 } else { 4 }, at)?;
                self.keep(index, at)?;
            }
            0x94 => self.keep(self.memo.len() as u64, at)?,
            b'h' | b'j' => {
                let index = self.number(if opcode == b'h' { 1 } else { 4 }, at)?;
                let id = usize::try_from(index).ok().and_then(|index| self.memo.get(index));
                self.stack
                    .push(*id.ok_or_else(|| format!("byte {at} of the pickle reads memo {index}, which is empty"))?);
            }
            // Tuples.
            b')' => self.stack.push(EMPTY),
            0x85..=0x87 => {
                let from = self.stack.len().checked_sub(usize::from(opcode - 0x84));
                let from = from.filter(|from| self.marks.last().is_none_or(|mark| mark <= from));
                let parts = self.stack.split_off(from.ok_or_else(missing)?);
                self.made(Kind::Tuple, &parts)?;
            }
            b't' => {
                let parts = self.since_mark()?;
                if parts.is_empty() { self.stack.push(EMPTY) } else { self.made(Kind::Tuple, &parts)? }
            }
            // Lists, dictionaries, sets.
            b']' => self.made(Kind::List, &[])?,
            b'}' => self.made(Kind::Dict, &[])?,
            0x8f => self.made(Kind::Set, &[])?,
            b'l' => {
                let parts = self.since_mark()?;
                self.made(Kind::List, &parts)?;
            }
            b'd' => {
                let parts = self.since_mark()?;
                self.made(Kind::Dict, &[])?;
                self.set(&parts)?;
            }
            0x91 => {
                let parts = self.since_mark()?;
                self.made(Kind::Frozen, &[])?;
                self.add(Kind::Frozen, &parts, true)?;
            }
            b'a' => {
                let part = self.pop()?;
                self.add(Kind::List, &[part], false)?;
            }
            b'e' => {
                let parts = self.since_mark()?;
                self.add(Kind::List, &parts, false)?;
            }
            0x90 => {
                let parts = self.since_mark()?;
                self.add(Kind::Set, &parts, true)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(&[key, value])?;
            }
            b'u' => {
                let parts = self.since_mark()?;
                self.set(&parts)?;
            }
            // Classes and objects.
            b'c' => {
                let _module = self.line(at)?;
                let name = self.line(at)?;
                self.class(name)?;
            }
            0x93 => {
                let (name, _module) = (self.pop()?, self.pop()?);
                let name = self.values[name as usize];
                self.class(match name.kind {
                    Kind::Text => &self.data[name.first as usize..][..name.len as usize],
                    _ => b"",
                })?;
            }
            b'R' | 0x81 => {
                let (args, callable) = (self.pop()?, self.pop()?);
                self.call(callable, args)?;
            }
            0x92 => {
                let (named, args, callable) = (self.pop()?, self.pop()?, self.pop()?);
                self.copy(named)?;
                self.call(callable, args)?;
            }
            b'b' => {
                let state = self.pop()?;
                self.build(state)?;
            }
            // Text opcodes, persistent ids, extensions, buffers outside of the pickle.
            _ => {
                return Err(format!("byte {at} of the pickle is {opcode:#04x}, which no checkpoint's metadata has"));
            }
        }
        Ok(())
    }

    /// The next bytes, which belong to the opcode at `at`.
    fn take(&mut self, len: u64, at: usize) -> Step<&'a [u8]> {
        let bytes = usize::try_from(len).ok().and_then(|len| self.data[self.at..].get(..len));
        let bytes = bytes.ok_or_else(|| format!("the pickle is truncated at byte {at}"))?;
        self.at += bytes.len();
        Ok(bytes)
    }

    fn number(&mut self, width: u64, at: usize) -> Step<u64> {
        Ok(self.take(width, at)?.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
    }

    /// A length in this many bytes, and as many bytes as it says.
    fn counted(&mut self, width: u64, at: usize) -> Step<u64> {
        let len = self.number(width, at)?;
        self.take(len, at)?;
        Ok(len)
    }

    fn line(&mut self, at: usize) -> Step<&'a [u8]> {
        let rest = &self.data[self.at..];
        let len =
            rest.iter().position(|b| *b == b'\n').ok_or_else(|| format!("the pickle is truncated at byte {at}"))?;
        self.at += len + 1;
        Ok(&rest[..len])
    }

    fn plain(&mut self, width: u64, at: usize) -> Step {
        self.take(width, at)?;
        self.stack.push(PLAIN);
        Ok(())
    }

    fn text(&mut self, opcode: u8, width: u64, at: usize) -> Step {
        let len = self.counted(width, at)?;
        let kind = if matches!(opcode, 0x8c | b'X' | 0x8d) { Kind::Text } else { Kind::Bytes };
        let first = small((self.at as u64).saturating_sub(len));
        self.push(Value { len: small(len), first, ..Value::of(kind) })
    }

    fn push(&mut self, value: Value) -> Step {
        if self.values.len() >= LITTLE + self.data.len() / VALUE_LEN {
            return Err("the pickle has more values than its length allows: it may be hostile".to_owned());
        }
        self.stack.push(self.values.len() as Id);
        self.values.push(value);
        Ok(())
    }

    fn top(&self) -> Step<Id> {
        let from = self.marks.last().copied().unwrap_or(0);
        self.stack[from..].last().copied().ok_or_else(missing)
    }

    fn pop(&mut self) -> Step<Id> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn since_mark(&mut self) -> Step<Vec<Id>> {
        let mark = self.marks.pop().ok_or_else(missing)?;
        Ok(self.stack.split_off(mark))
    }

    fn keep(&mut self, index: u64, at: usize) -> Step {
        let top = self.top()?;
        match usize::try_from(index) {
            Ok(index) if index < self.memo.len() => self.memo[index] = top,
            Ok(index) if index == self.memo.len() => self.memo.push(top),
            _ => return Err(format!("byte {at} of the pickle stores memo {index}, not {}", self.memo.len())),
        }
        Ok(())
    }

    /// Pushes a new value with these elements.
    fn made(&mut self, kind: Kind, parts: &[Id]) -> Step {
        self.push(Value { first: parts.first().copied().unwrap_or(0), ..Value::of(kind) })?;
        parts.iter().try_for_each(|part| self.put(*part))
    }

    /// Makes a value a part of the one on top.
    fn put(&mut self, part: Id) -> Step {
        let of = self.top()?;
        let inner = &mut self.values[part as usize];
        inner.is_part = true;
        let inner = *inner;
        let value = &mut self.values[of as usize];
        if inner.depth >= MAX_DEPTH {
            return Err(format!("the pickle nests values more than {MAX_DEPTH} deep: it may be hostile"));
        }
        value.depth = value.depth.max(inner.depth + 1);
        value.len = value.len.saturating_add(1);
        value.inner = value.inner.saturating_add(inner.len);
        value.nodes = value.nodes.saturating_add(inner.nodes);
        value.keys = value.keys.saturating_add(inner.as_key());
        Ok(())
    }

    /// The value on top, which is about to change.
    fn changing(&mut self, allowed: &[Kind]) -> Step<&mut Value> {
        let top = self.top()? as usize;
        let value = &mut self.values[top];
        if !allowed.contains(&value.kind) {
            return Err("the pickle changes what cannot be changed: it may be hostile".to_owned());
        }
        if value.is_part {
            return Err("the pickle changes a value that is a part of another one: it may be hostile".to_owned());
        }
        Ok(value)
    }

    /// Adds elements to the value on top, of this kind or an object.
    fn add(&mut self, kind: Kind, parts: &[Id], are_keys: bool) -> Step {
        self.changing(&[kind, Kind::Object])?;
        for &part in parts {
            if are_keys {
                self.key(self.values[part as usize].as_key())?;
            }
            self.put(part)?;
        }
        Ok(())
    }

    /// Adds items, keys and values in turn.
    fn set(&mut self, parts: &[Id]) -> Step {
        self.changing(&[Kind::Dict, Kind::Object])?;
        for (i, &part) in parts.iter().enumerate() {
            if i % 2 == 0 {
                self.key(self.values[part as usize].as_key())?;
            }
            self.put(part)?;
        }
        Ok(())
    }

    /// Counts keys, as [`Value::as_key`] does.
    fn key(&mut self, keys: u32) -> Step {
        if keys == NO_KEYS {
            return Err("the pickle has a key that no checkpoint's metadata has: it may be hostile".to_owned());
        }
        self.keys += u64::from(keys);
        if self.keys > MAX_KEYS {
            return Err(format!("the pickle has more than {MAX_KEYS} keys that are no text: it may be hostile"));
        }
        Ok(())
    }

    /// Counts the elements of a value, and of those of a tuple, as a call may copy them.
    fn copy(&mut self, id: Id) -> Step {
        let value = &self.values[id as usize];
        let inner = if value.kind == Kind::Tuple { value.inner } else { 0 };
        self.copied += u64::from(value.len) + u64::from(inner);
        if self.copied > MAX_COPIES * (LITTLE + self.data.len()) as u64 {
            return Err("the pickle makes more of its values than its length allows: it may be hostile".to_owned());
        }
        Ok(())
    }

    fn class(&mut self, name: &[u8]) -> Step {
        self.push(Value::of(match name {
            b"set" | b"frozenset" => Kind::SetClass,
            b"MetadataIndex" => Kind::IndexClass,
            _ => Kind::Class,
        }))
    }

    fn call(&mut self, callable: Id, args: Id) -> Step {
        let (callable, arguments) = (self.values[callable as usize].kind, self.values[args as usize]);
        self.copy(args)?;
        let mut made = Value::of(match callable {
            Kind::IndexClass => Kind::Index,
            Kind::SetClass => Kind::Frozen,
            _ => Kind::Object,
        });
        if callable == Kind::SetClass && arguments.len > 0 {
            let of = self.values[arguments.first as usize];
            let items = matches!(of.kind, Kind::Tuple | Kind::List | Kind::Set | Kind::Frozen);
            self.key(if items { of.keys } else { 0 })?;
            (made.len, made.keys) = (of.len, of.keys);
        }
        self.push(made)?;
        let len = made.len;
        self.put(args)?;
        let top = self.top()? as usize;
        (self.values[top].len, self.values[top].keys) = (len, made.keys);
        Ok(())
    }

    /// Sets attributes of the object on top.
    fn build(&mut self, state: Id) -> Step {
        self.copy(state)?;
        let top = self.top()? as usize;
        if !matches!(self.values[top].kind, Kind::Object | Kind::Index) {
            // The unpickler refuses that, or a stand-in does.
            return Ok(());
        }
        let object = self.changing(&[Kind::Object, Kind::Index])?;
        if std::mem::replace(&mut object.is_built, true) {
            return Err("the pickle sets the attributes of one object twice: it may be hostile".to_owned());
        }
        self.put(state)
    }
}

fn missing() -> String {
    "the pickle takes a value that is not there".to_owned()
}

fn small(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Checks that Python's unpickler can read a pickle in memory and time proportional to its length, and without deep
/// recursion. Does not check the names in it.
///
/// Raises `lmc.FormatError` if it cannot.
#[pyfunction]
pub(crate) fn check_pickle(py: Python<'_>, data: &[u8]) -> Result<()> {
    detached(py, || Machine::new(data).run().map_err(|why| Failure::Other("FormatError", why)))
}
