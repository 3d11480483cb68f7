//! The float formats as type parameters of kernels that read them.
#![expect(unsafe_code, reason = "vector loads through pointers")]

use super::Lanes;

/// Numbers as they are stored, sixteen of which load as lanes.
pub(crate) trait Element: Copy + Send + Sync {
    /// Bytes of one.
    const BYTES: usize;
    /// Whether weights of it have scales.
    const SCALED: bool;
    /// # Safety
    /// Sixteen of them lie at `at`.
    unsafe fn load<L: Lanes>(l: L, at: *const u8) -> L::F;
}

macro_rules! elements {
    ($($name:ident: $bytes:literal, $scaled:literal, $load:ident;)*) => {
        $(
            #[derive(Clone, Copy)]
            pub(crate) struct $name;
            impl Element for $name {
                const BYTES: usize = $bytes;
                const SCALED: bool = $scaled;
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
    F32: 4, false, load;
    F16: 2, false, load_f16;
    BF16: 2, false, load_bf16;
    E4M3: 1, true, load_e4m3;
}
