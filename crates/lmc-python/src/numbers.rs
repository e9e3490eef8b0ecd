//! Numbers from Python. One that is out of range is an `lmc.UsageError` that names its argument, not an `OverflowError`.

use std::fmt::Display;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::errors::Failure;

/// A type of numeric arguments.
pub(crate) trait Number: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr> + Display {
    const RANGE: (Self, Self);
}

macro_rules! number {
    ($($type:ty),*) => {
        $(impl Number for $type {
            const RANGE: (Self, Self) = (<$type>::MIN, <$type>::MAX);
        })*
    };
}

number!(u32, u64, usize);

/// Converts the argument `name`.
pub(crate) fn number<T: Number>(object: &Bound<'_, PyAny>, name: &str) -> PyResult<T> {
    let (least, most) = T::RANGE;
    number_within(object, name, &format!("from {least} to {most}"))
}

/// [`number`] with the permitted `range` for the error message.
pub(crate) fn number_within<T>(object: &Bound<'_, PyAny>, name: &str, range: &str) -> PyResult<T>
where
    T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    object.extract().map_err(|e: PyErr| {
        if !e.is_instance_of::<PyOverflowError>(object.py()) {
            return e;
        }
        // Python refuses to format numbers of thousands of digits.
        let shown =
            object.str().map_or_else(|_| "(a number of many digits)".to_owned(), |s| s.to_string_lossy().into_owned());
        Failure::usage(format!("{name}={shown}: must be {range}")).into()
    })
}

/// The shape of a tensor.
pub(crate) fn shape(object: &Bound<'_, PyAny>, tensor: &str) -> PyResult<Vec<u64>> {
    let name = format!("a dimension of the tensor {tensor:?}");
    object.try_iter()?.map(|n| number(&n?, &name)).collect()
}

/// Argument types: numbers that know the name of their argument.
macro_rules! arguments {
    ($($type:ident($of:ty) = $name:literal;)*) => {
        $(
            #[doc = concat!("The argument `", $name, "`.")]
            #[derive(Clone, Copy)]
            pub(crate) struct $type(pub(crate) $of);

            impl FromPyObject<'_, '_> for $type {
                type Error = PyErr;

                fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
                    number(&object, $name).map(Self)
                }
            }
        )*
    };
}

arguments! {
    KeepEvery(u64) = "keep_every";
    MaxSize(u64) = "max_size";
    MaxWork(u64) = "max_work";
    Offset(u64) = "offset";
    Size(u64) = "size";
    Start(u64) = "start";
    StepNumber(u64) = "step";
    Stop(u64) = "stop";
}

/// Functions for `from_py_with`, for arguments with a number as default.
macro_rules! with_default {
    ($($name:ident -> $of:ty;)*) => {
        $(
            pub(crate) fn $name(object: &Bound<'_, PyAny>) -> PyResult<$of> {
                number(object, stringify!($name))
            }
        )*
    };
}

with_default! {
    anchor_every -> u32;
    cache_size -> u64;
    every -> u32;
    grace_seconds -> u64;
    keep_last -> usize;
}

/// Functions for arguments that are lists of numbers.
macro_rules! lists {
    ($($name:ident;)*) => {
        $(
            pub(crate) fn $name(object: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
                object.try_iter()?.map(|n| number(&n?, stringify!($name))).collect()
            }
        )*
    };
}

lists! {
    damaged;
    distances;
    drop;
    expect;
    keep_steps;
}
