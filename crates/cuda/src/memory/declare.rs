//! Buffers of several stages, declared in one place with their maximum sizes.

/// Declares buffers, each with the maximum number of values for a task of size `x`.
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
            pub fn new(arena: &std::sync::Arc<$crate::memory::TaskArena>) -> Self {
                Self { $($name: $crate::memory::DeviceBuffer::new(arena),)+ }
            }

            /// Maximum device memory of all buffers in bytes.
            pub fn bytes($x: &$size) -> u64 {
                let buffers = [$($crate::memory::space::<$value>($len),)+];
                buffers.into_iter().fold(0, u64::saturating_add)
            }
        }
    };
}

pub(crate) use buffers;
