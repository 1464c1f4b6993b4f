//! Buffers of several stages, declared in one place with how large they get.

/// Declares buffers, each with how many values a task of size `x` puts there at most.
macro_rules! buffers {
    (
        $(#[$doc:meta])* $all:ident of $size:ty, |$x:ident|
        $($(#[$field_doc:meta])* $name:ident: $value:ty = $len:expr;)+
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $all {
            $($(#[$field_doc])* pub $name: $crate::memory::DeviceBuffer<$value>,)+
        }

        impl $all {
            /// Empty buffers in `arena`.
            pub fn new(arena: &std::sync::Arc<$crate::memory::Arena>) -> Self {
                Self { $($name: $crate::memory::DeviceBuffer::new(arena),)+ }
            }

            /// Device memory that they take at most, bytes.
            pub fn bytes($x: &$size) -> u64 {
                let buffers = [$($crate::memory::space::<$value>($len),)+];
                buffers.into_iter().fold(0, u64::saturating_add)
            }
        }
    };
}

pub(crate) use buffers;
