//! The float formats as type parameters of kernels that read them.
#![expect(unsafe_code, reason = "vector loads through pointers")]

use super::Lanes;

/// Numbers as they are stored, sixteen of which load as lanes.
pub(crate) trait Element: Copy + Send + Sync {
    /// Bytes of one.
    const BYTES: usize;
    /// # Safety
    /// Sixteen of them lie at `at`.
    unsafe fn load<L: Lanes>(l: L, at: *const u8) -> L::F;
}

macro_rules! elements {
    ($($name:ident: $bytes:literal, $load:ident;)*) => {
        $(
            #[derive(Clone, Copy)]
            pub(crate) struct $name;
            impl Element for $name {
                const BYTES: usize = $bytes;
                #[inline(always)]
                unsafe fn load<L: Lanes>(l: L, at: *const u8) -> L::F {
                    // SAFETY: passed on to the caller.
                    unsafe { l.$load(at.cast()) }
                }
            }
        )*
    };
}

elements! {
    F32: 4, load;
    F16: 2, load_f16;
    BF16: 2, load_bf16;
}
