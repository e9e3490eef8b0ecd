//! JSON objects with long lists, written element by element: as a [`Value`] each element would take thousands of bytes.

use std::io::{Result, Write};

use serde_json::{Value, to_writer};

/// An object being written.
pub(crate) struct Object<W> {
    out: W,
    fields: usize,
}

impl<W: Write> Object<W> {
    pub(crate) fn begin(mut out: W) -> Result<Self> {
        out.write_all(b"{")?;
        Ok(Self { out, fields: 0 })
    }

    pub(crate) fn field(&mut self, name: &str, value: &Value) -> Result<()> {
        self.name(name)?;
        Ok(to_writer(&mut self.out, value)?)
    }

    /// A field with a list.
    pub(crate) fn list(&mut self, name: &str, elements: impl Iterator<Item = Value>) -> Result<()> {
        self.name(name)?;
        self.out.write_all(b"[")?;
        for (i, element) in elements.enumerate() {
            if i > 0 {
                self.out.write_all(b",")?;
            }
            to_writer(&mut self.out, &element)?;
        }
        self.out.write_all(b"]")
    }

    /// Ends the object and the line.
    pub(crate) fn end(mut self) -> Result<W> {
        self.out.write_all(b"}\n")?;
        Ok(self.out)
    }

    fn name(&mut self, name: &str) -> Result<()> {
        if self.fields > 0 {
            self.out.write_all(b",")?;
        }
        self.fields += 1;
        to_writer(&mut self.out, name)?;
        self.out.write_all(b":")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_the_object() {
        let mut object = Object::begin(Vec::new()).unwrap();
        object.field("a", &json!({ "b": [1, null] })).unwrap();
        object.list("none", std::iter::empty()).unwrap();
        object.list("some\"", [json!(1.5), json!("x")].into_iter()).unwrap();
        let text = String::from_utf8(object.end().unwrap()).unwrap();
        assert_eq!(text, "{\"a\":{\"b\":[1,null]},\"none\":[],\"some\\\"\":[1.5,\"x\"]}\n");
        let empty = Object::begin(Vec::new()).unwrap().end().unwrap();
        assert_eq!(empty, b"{}\n");
    }
}
