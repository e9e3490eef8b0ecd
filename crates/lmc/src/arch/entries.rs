//! How kernels are entered.

/// Declares the functions that lead to the kernels of an instruction set: each takes an [`Isa`](crate::isa::Isa) of that kind.
macro_rules! entries {
    ($kind:ident $($vis:vis fn $name:ident($($arg:ident: $type:ty),*) $(-> $ret:ty)? = $kernel:path;)*) => {$(
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $type),*) $(-> $ret)? {
            assert_eq!(isa.kind(), $crate::isa::Kind::$kind);
            // SAFETY: an `Isa` of this kind exists only where the features that the kernel is compiled for were detected.
            unsafe { $kernel($($arg),*) }
        }
    )*};
}
