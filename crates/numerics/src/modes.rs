//! Closed choices that are spelled as words: rounding, scaling, profile.

use std::fmt;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The word as written in programs and in IR text.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

            pub fn from_name(s: &str) -> Option<$name> {
                match s { $($word => Some($name::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

words! {
    /// How a value between two codes is brought to one of them.
    Rounding {
        /// To the nearest, ties to the even code.
        Rne = "rne",
        /// Towards zero.
        Rtz = "rtz",
        /// Towards plus infinity.
        Up = "up",
        /// Towards minus infinity.
        Down = "down",
        /// Up with the probability of the fraction. The draw comes from the counter generator, so
        /// only [`encode_drawn`](crate::encode_drawn) can honour it; functions without a draw round
        /// to the nearest, which is the draw's expected choice.
        Stochastic = "stochastic",
    }
}

words! {
    /// How the scale of a scaled tensor is found.
    ScaleMode {
        /// From the largest magnitude of the tensor being stored.
        AmaxDynamic = "amax_dynamic",
        /// From the history of earlier steps.
        Delayed = "delayed",
    }
}

words! {
    /// How much of a result is promised (SPEC 4.3).
    #[derive(Default)]
    Profile {
        /// Within the documented error bounds.
        #[default]
        Default = "default",
        /// The same bits from run to run on one build and device.
        Deterministic = "deterministic",
        /// The same bits everywhere.
        Strict = "strict",
    }
}
