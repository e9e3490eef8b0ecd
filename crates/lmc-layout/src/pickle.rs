//! Python's pickles, protocols 0 to 5 (`pickletools` of CPython describes the opcodes). Classes and functions are names here: nothing is
//! imported, called or unpickled.

use std::collections::HashMap;

/// Most bytes of a pickle: enough for a hundred thousand tensors.
pub(super) const MAX_LEN: u64 = 1 << 25;
/// Most values of a pickle: enough for a hundred thousand tensors.
pub(super) const MAX_VALUES: usize = 1 << 22;
/// Most values on the stack.
const MAX_STACK: usize = 1 << 22;

/// Most attributes of an object that is asked for one: a state may be that of many objects.
const MAX_ATTRIBUTES: usize = 64;

/// The index of a value.
pub(super) type Id = u32;

/// On the stack, a mark.
const MARK: Id = Id::MAX;

/// A value, whose parts are other values. A value may be part of several, and of itself.
#[derive(Debug)]
pub(super) enum Value<'a> {
    /// One that says nothing here: None, a float, bytes, a long integer.
    Other,
    Bool(bool),
    Int(i64),
    Str(&'a str),
    /// A class or a function: the strings of its module and name.
    Global(Id, Id),
    /// A tuple: a range of [`Pickle::tuples`].
    Tuple(u32, u32),
    /// A list or a set.
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// An object that the writer stored outside of the pickle, under this key.
    Persistent(Id),
    /// The result of a call: the class or function, and its arguments, a tuple if the pickle is valid.
    Object {
        callable: Id,
        args: Id,
    },
}

/// The changes made to an object after its creation.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The state that set its attributes.
    pub(super) state: Option<Id>,
    /// Items, of a subclass of `dict`.
    pub(super) items: Vec<(Id, Id)>,
    /// Elements, of a subclass of `list`.
    pub(super) elements: Vec<Id>,
}

/// The values of a pickle.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    values: Vec<Value<'a>>,
    tuples: Vec<Id>,
    changes: HashMap<Id, Changes>,
    pub(super) root: Id,
    /// Bytes of the pickle; others may follow.
    pub(super) len: usize,
}

impl<'a> Pickle<'a> {
    /// The values of the pickle that `bytes` begin with; `None` if it is damaged, too large, or refers to anything but its own bytes.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        Self::with_at_most(MAX_VALUES, bytes)
    }

    /// The same, of a pickle with at most this number of values.
    pub(super) fn with_at_most(max_values: usize, bytes: &'a [u8]) -> Option<Self> {
        let mut machine = Machine { bytes, max_values, ..Machine::default() };
        let root = loop {
            if let Some(root) = machine.step()? {
                break root;
            }
        };
        let Machine { values, tuples, changes, at, .. } = machine;
        Some(Self { values, tuples, changes, root, len: at })
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn get(&self, id: Id) -> &Value<'a> {
        &self.values[id as usize]
    }

    pub(super) fn str(&self, id: Id) -> Option<&'a str> {
        match self.get(id) {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// An integer that is no less than 0.
    pub(super) fn size(&self, id: Id) -> Option<u64> {
        match self.get(id) {
            Value::Int(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    pub(super) fn sequence(&self, id: Id) -> Option<&[Id]> {
        match self.get(id) {
            Value::List(values) => Some(values),
            &Value::Tuple(first, len) => Some(&self.tuples[first as usize..][..len as usize]),
            _ => None,
        }
    }

    /// The changes made to an object; `None` if there were none.
    pub(super) fn changes(&self, object: Id) -> Option<&Changes> {
        self.changes.get(&object)
    }

    /// The value of an attribute, as the object's state gives it.
    pub(super) fn attribute(&self, object: Id, name: &str) -> Option<Id> {
        let Value::Dict(attributes) = self.get(self.changes(object)?.state?) else { return None };
        if attributes.len() > MAX_ATTRIBUTES {
            return None;
        }
        attributes.iter().rev().find(|&&(key, _)| self.str(key) == Some(name)).map(|&(_, value)| value)
    }

    /// Module and name of a class or a function.
    pub(super) fn global(&self, id: Id) -> Option<(&'a str, &'a str)> {
        match *self.get(id) {
            Value::Global(module, name) => Some((self.str(module)?, self.str(name)?)),
            _ => None,
        }
    }
}

/// The interpreter of opcodes.
#[derive(Default)]
struct Machine<'a> {
    bytes: &'a [u8],
    max_values: usize,
    at: usize,
    values: Vec<Value<'a>>,
    tuples: Vec<Id>,
    changes: HashMap<Id, Changes>,
    stack: Vec<Id>,
    /// The memo: entries with the keys 0, 1, 2 and so on, as Python numbers them; and all others.
    memo: Vec<Id>,
    more: HashMap<u64, Id>,
}

impl<'a> Machine<'a> {
    /// Runs an opcode; gives the result at the last one. `None` if that is impossible.
    fn step(&mut self) -> Option<Option<Id>> {
        match self.u8()? {
            b'.' => return self.pop().map(Some),
            b'(' => self.push_id(MARK)?,
            // Protocol, frame.
            0x80 => _ = self.u8()?,
            0x95 => _ = self.take(8)?,
            // None, booleans, floats, bytes.
            b'N' => self.push(Value::Other)?,
            byte @ (0x88 | 0x89) => self.push(Value::Bool(byte == 0x88))?,
            b'G' => self.skip(8)?,
            b'F' => {
                self.line()?;
                self.push(Value::Other)?;
            }
            b'C' => {
                let n = self.u8()?;
                self.skip(n.into())?;
            }
            b'B' => {
                let n = self.number(4)?;
                self.skip(n)?;
            }
            0x8e | 0x96 => {
                let n = self.number(8)?;
                self.skip(n)?;
            }
            // Integers.
            b'K' => self.unsigned(1)?,
            b'M' => self.unsigned(2)?,
            b'J' => {
                let n = i32::from_le_bytes(*self.take(4)?.first_chunk()?);
                self.push(Value::Int(n.into()))?;
            }
            b'I' | b'L' => {
                let text = self.line()?;
                self.push(match text {
                    "00" | "01" => Value::Bool(text == "01"),
                    _ => text.trim_end_matches('L').parse().map_or(Value::Other, Value::Int),
                })?;
            }
            0x8a => {
                let n = self.u8()?;
                self.long(n.into())?;
            }
            0x8b => {
                let n = self.number(4)?;
                self.long(n)?;
            }
            // Strings.
            0x8c | b'U' => {
                let n = self.u8()?;
                self.text(n.into())?;
            }
            b'X' | b'T' => {
                let n = self.number(4)?;
                self.text(n)?;
            }
            0x8d => {
                let n = self.number(8)?;
                self.text(n)?;
            }
            b'V' => {
                let line = self.line()?;
                self.push(Value::Str(line))?;
            }
            b'S' => {
                let line = self.line()?;
                let quoted = |q| line.strip_prefix(q)?.strip_suffix(q);
                let text = quoted('\'').or_else(|| quoted('"'))?;
                self.push(Value::Str(text))?;
            }
            // Tuples, lists, sets, dictionaries.
            b')' => self.push(Value::Tuple(0, 0))?,
            b']' | 0x8f => self.push(Value::List(vec![]))?,
            b't' => {
                let mark = self.mark()?;
                let tuple = self.tuple(mark + 1);
                self.stack.pop();
                self.push(tuple)?;
            }
            b'l' | 0x91 => {
                let values = self.since_mark()?;
                self.push(Value::List(values))?;
            }
            n @ 0x85..=0x87 => {
                let from = self.stack.len().checked_sub(usize::from(n - 0x84))?;
                if self.stack[from..].contains(&MARK) {
                    return None;
                }
                let tuple = self.tuple(from);
                self.push(tuple)?;
            }
            b'}' => self.push(Value::Dict(vec![]))?,
            b'd' => {
                let values = self.since_mark()?;
                self.push(Value::Dict(pairs(&values)?))?;
            }
            b'a' => {
                let value = self.pop()?;
                self.extend(&[value])?;
            }
            b'e' | 0x90 => {
                let values = self.since_mark()?;
                self.extend(&values)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(&[(key, value)])?;
            }
            b'u' => {
                let values = self.since_mark()?;
                self.set(&pairs(&values)?)?;
            }
            // The stack.
            b'0' => _ = self.stack.pop()?,
            b'1' => _ = self.since_mark()?,
            b'2' => self.push_id(self.top()?)?,
            // The memo.
            b'p' => {
                let key = self.line()?.parse().ok()?;
                self.remember(key)?;
            }
            code @ (b'q' | b'r') => {
                let key = self.number(if code == b'q' { 1 } else { 4 })?;
                self.remember(key)?;
            }
            0x94 => self.remember((self.memo.len() + self.more.len()) as u64)?,
            b'g' => {
                let key = self.line()?.parse().ok()?;
                self.recall(key)?;
            }
            code @ (b'h' | b'j') => {
                let key = self.number(if code == b'h' { 1 } else { 4 })?;
                self.recall(key)?;
            }
            // Classes, functions, objects.
            b'c' => self.global()?,
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                self.push(Value::Global(module, name))?;
            }
            b'R' | 0x81 => {
                let (args, callable) = (self.pop()?, self.pop()?);
                self.call(callable, args)?;
            }
            0x92 => {
                let (_, args, callable) = (self.pop()?, self.pop()?, self.pop()?);
                self.call(callable, args)?;
            }
            b'o' => {
                let mark = self.mark()?;
                let callable = *self.stack.get(mark + 1)?;
                let args = self.tuple(mark + 2);
                self.stack.truncate(mark);
                self.call_with(callable, args)?;
            }
            b'i' => {
                self.global()?;
                let callable = self.pop()?;
                let mark = self.mark()?;
                let args = self.tuple(mark + 1);
                self.stack.truncate(mark);
                self.call_with(callable, args)?;
            }
            b'b' => {
                let state = self.pop()?;
                let top = self.top()?;
                if let Value::Object { .. } = self.values[top as usize] {
                    self.changes.entry(top).or_default().state = Some(state);
                }
            }
            b'Q' => {
                let key = self.pop()?;
                self.push(Value::Persistent(key))?;
            }
            b'P' => {
                let line = self.line()?;
                self.push(Value::Str(line))?;
                let key = self.pop()?;
                self.push(Value::Persistent(key))?;
            }
            // Extension codes, buffers outside of the pickle, and bytes that are no opcode.
            _ => return None,
        }
        Some(None)
    }

    fn take(&mut self, n: u64) -> Option<&'a [u8]> {
        let bytes = self.bytes[self.at..].get(..usize::try_from(n).ok()?)?;
        self.at += bytes.len();
        Some(bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    /// An unsigned number of `n` ≤ 8 bytes.
    fn number(&mut self, n: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..n].copy_from_slice(self.take(n as u64)?);
        Some(u64::from_le_bytes(bytes))
    }

    /// The rest of a line.
    fn line(&mut self) -> Option<&'a str> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|&b| b == b'\n')?;
        self.at += len + 1;
        std::str::from_utf8(&rest[..len]).ok()
    }

    fn push_id(&mut self, id: Id) -> Option<()> {
        (self.stack.len() < MAX_STACK).then(|| self.stack.push(id))
    }

    fn push(&mut self, value: Value<'a>) -> Option<()> {
        if self.values.len() >= self.max_values {
            return None;
        }
        self.values.push(value);
        self.push_id(self.values.len() as Id - 1)
    }

    fn skip(&mut self, n: u64) -> Option<()> {
        self.take(n)?;
        self.push(Value::Other)
    }

    fn unsigned(&mut self, bytes: usize) -> Option<()> {
        let n = self.number(bytes)?;
        self.push(Value::Int(n as i64))
    }

    /// A two's complement number of `n` bytes.
    fn long(&mut self, n: u64) -> Option<()> {
        let bytes = self.take(n)?;
        let mut all = match bytes.last() {
            Some(0x80..) => [0xff; 8],
            _ => [0; 8],
        };
        let value = all.get_mut(..bytes.len()).map(|low| low.copy_from_slice(bytes));
        self.push(value.map_or(Value::Other, |()| Value::Int(i64::from_le_bytes(all))))
    }

    /// A string of `n` bytes; no text of Python 2, nor one with lone surrogates, is a name.
    fn text(&mut self, n: u64) -> Option<()> {
        let text = std::str::from_utf8(self.take(n)?);
        self.push(text.map_or(Value::Other, Value::Str))
    }

    fn top(&self) -> Option<Id> {
        self.stack.last().copied().filter(|&id| id != MARK)
    }

    fn pop(&mut self) -> Option<Id> {
        self.stack.pop().filter(|&id| id != MARK)
    }

    /// The place of the last mark.
    fn mark(&self) -> Option<usize> {
        self.stack.iter().rposition(|&id| id == MARK)
    }

    /// The values above the last mark, which is taken away, too.
    fn since_mark(&mut self) -> Option<Vec<Id>> {
        let mark = self.mark()?;
        let values = self.stack.split_off(mark + 1);
        self.stack.pop();
        Some(values)
    }

    /// A tuple of the values from a place of the stack on, which are taken away.
    fn tuple(&mut self, from: usize) -> Value<'a> {
        let first = self.tuples.len();
        self.tuples.extend(self.stack.drain(from..));
        Value::Tuple(first as u32, (self.tuples.len() - first) as u32)
    }

    fn extend(&mut self, values: &[Id]) -> Option<()> {
        let top = self.top()?;
        match &mut self.values[top as usize] {
            Value::List(elements) => elements.extend(values),
            Value::Object { .. } => self.changes.entry(top).or_default().elements.extend(values),
            _ => return None,
        }
        Some(())
    }

    fn set(&mut self, items: &[(Id, Id)]) -> Option<()> {
        let top = self.top()?;
        match &mut self.values[top as usize] {
            Value::Dict(dict) => dict.extend(items),
            Value::Object { .. } => self.changes.entry(top).or_default().items.extend(items),
            _ => return None,
        }
        Some(())
    }

    fn remember(&mut self, key: u64) -> Option<()> {
        let top = self.top()?;
        match usize::try_from(key) {
            Ok(key) if key < self.memo.len() => self.memo[key] = top,
            Ok(key) if key == self.memo.len() && self.more.is_empty() => self.memo.push(top),
            _ => _ = self.more.insert(key, top),
        }
        Some(())
    }

    fn recall(&mut self, key: u64) -> Option<()> {
        let known = usize::try_from(key).ok().and_then(|key| self.memo.get(key));
        let id = *known.or_else(|| self.more.get(&key))?;
        self.push_id(id)
    }

    fn global(&mut self) -> Option<()> {
        let (module, name) = (self.line()?, self.line()?);
        self.push(Value::Str(module))?;
        self.push(Value::Str(name))?;
        let (name, module) = (self.pop()?, self.pop()?);
        self.push(Value::Global(module, name))
    }

    fn call(&mut self, callable: Id, args: Id) -> Option<()> {
        self.push(Value::Object { callable, args })
    }

    /// A call with arguments that are no value yet.
    fn call_with(&mut self, callable: Id, args: Value<'a>) -> Option<()> {
        self.push(args)?;
        let args = self.pop()?;
        self.call(callable, args)
    }
}

/// Keys and values, which take turns.
fn pairs(values: &[Id]) -> Option<Vec<(Id, Id)>> {
    let (pairs, []) = values.as_chunks::<2>() else { return None };
    Some(pairs.iter().map(|&[key, value]| (key, value)).collect())
}
