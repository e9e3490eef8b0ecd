//! How plain records show themselves.

/// Defines `__repr__` of a class, by the name of the class and its fields: numbers, text, paths, and lists of them.
macro_rules! record_repr {
    ($class:ident($first:ident $(, $field:ident)*)) => {
        #[pymethods]
        impl $class {
            fn __repr__(&self) -> String {
                format!(
                    concat!(stringify!($class), "(", stringify!($first), "={:?}" $(, ", ", stringify!($field), "={:?}")*, ")"),
                    self.$first $(, self.$field)*
                )
            }
        }
    };
}

pub(crate) use record_repr;
