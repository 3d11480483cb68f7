//! Which layers keep their keys and values together: one class per window, the class without a window first.

use cluster_engine::{KvClass, KvKind};
use cluster_kernels::{KvDType, KvShape};
use cluster_messages::Fingerprint;

use crate::spec::{AttentionSpec, ModelSpec};

/// Changes when the kernels arrange a block's bytes in another way.
const PAGE_FORMAT: &[u8] = b"cluster kv page 1";

/// The classes of a model and where each layer's state lies.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    pub(crate) classes: Vec<Class>,
    pub(crate) places: Vec<Place>,
}

/// Layers with the same window and the same heads.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    window: Option<usize>,
    pub(crate) shape: KvShape,
}

/// Where a layer's state lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Which class.
    pub(crate) class: usize,
    /// Which of its layers.
    pub(crate) layer: usize,
}

impl Classes {
    pub(crate) fn of(spec: &ModelSpec, block_tokens: usize, dtype: KvDType) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        let full_first = [true, false];
        for full in full_first {
            for layer in &spec.layers {
                let attention = &layer.attention;
                if attention.window.is_none() == full && !classes.iter().any(|class| class.holds(attention)) {
                    classes.push(Class::new(attention, block_tokens, dtype));
                }
            }
        }
        let place = |attention: &AttentionSpec| {
            let class = classes.iter().position(|class| class.holds(attention));
            let class = class.expect("every layer's class was added above");
            let layer = classes[class].shape.layers;
            classes[class].shape.layers += 1;
            Place { class, layer }
        };
        let places = spec.layers.iter().map(|layer| &layer.attention).map(place).collect();
        Self { classes, places }
    }

    /// The classes as the engine knows them.
    pub(crate) fn described(&self) -> Vec<KvClass> {
        self.classes.iter().map(Class::described).collect()
    }

    /// Bytes of a token's keys and values over all layers.
    pub(crate) fn bytes_per_token(&self) -> usize {
        let bytes = |class: &Class| class.shape.block_bytes() / class.shape.block_tokens;
        self.classes.iter().map(bytes).sum()
    }

    /// Equal for models whose blocks have the same bytes in the same places.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let described: Vec<String> = self.classes.iter().map(|class| format!("{class:?}")).collect();
        Fingerprint::of(std::iter::once(PAGE_FORMAT).chain(described.iter().map(String::as_bytes)))
    }
}

impl Class {
    fn new(attention: &AttentionSpec, block_tokens: usize, dtype: KvDType) -> Self {
        Self {
            window: attention.window,
            shape: KvShape {
                layers: 0,
                kv_heads: attention.kv_heads,
                head_dim: attention.head_dim,
                block_tokens,
                dtype,
            },
        }
    }

    fn holds(&self, attention: &AttentionSpec) -> bool {
        self.window == attention.window
            && self.shape.kv_heads == attention.kv_heads
            && self.shape.head_dim == attention.head_dim
    }

    fn described(&self) -> KvClass {
        KvClass {
            kind: match self.window {
                None => KvKind::Full,
                Some(tokens) => KvKind::Window { tokens: tokens as u32 },
            },
            block_tokens: self.shape.block_tokens as u32,
            block_bytes: self.shape.block_bytes(),
        }
    }
}

#[cfg(test)]
mod tests;
