//! Passes that can be left out, each by itself, to see what it gives. Without one a kernel, or a plan, takes
//! the next best way and computes the same.
//!
//! The names stand in the function's `config`, as `off = [epilogue, rotate]`: what is left out is a
//! part of the text that code is made from and kept by.

use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, Attrs, Func, Level};

macro_rules! steps {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal,)+) => {
        /// A pass that code can do without.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Step {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Step {
            pub const ALL: &'static [Step] = &[$(Step::$name,)+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Step::$name => $word,)+
                }
            }
        }
    };
}

steps! {
    /// Masks that hide nothing are dropped.
    Whole = "whole",
    /// Iterations of a loop in which masks hide nothing are a loop of their own.
    Split = "split",
    /// Arithmetic is shortened as far as the profile allows.
    Relax = "relax",
    /// Products go to the matrix engine; without it warps make them.
    Encode = "encode",
    /// A block takes one group of the launch after another.
    Tiles = "tiles",
    /// Groups are walked in bands.
    Raster = "raster",
    /// Groups of different length go to whoever is free, the longest first.
    Order = "order",
    /// Results leave through shared memory.
    Epilogue = "epilogue",
    /// A finished result is stored, piece by piece, while the next is computed.
    Defer = "defer",
    /// What products read comes in pipelines, by copies of boxes.
    Feeds = "feeds",
    /// A product is under way while the next iteration begins.
    Rotate = "rotate",
    /// The second of two products is begun with the next first.
    Pair = "pair",
    /// Loops of two products that follow each other are one sequence of iterations.
    Chain = "chain",
    /// Loops that hand registers to the engine run two iterations a round.
    Twice = "twice",
    /// Accumulators keep their registers from loop to loop.
    Stay = "stay",
    /// What few rows need is asked for by warps.
    Seldom = "seldom",
    /// One role fills the pipelines, another works.
    Roles = "roles",
    /// Roles share registers unevenly.
    Pools = "pools",
    /// Three warpgroups share rows that are three times theirs.
    Divide = "divide",
    /// Warpgroups store their parts of a result each on its own.
    Apart = "apart",
    /// Warpgroups begin the products of a loop in turn.
    Alternate = "alternate",
    /// Blocks of a cluster copy what they all read once.
    Multicast = "multicast",
    /// Blocks take one group after another where a group reads much at once.
    Persist = "persist",
    /// What all iterations of a loop read alike is loaded before it.
    Hoist = "hoist",
    /// Copies of threads run ahead of a loop.
    Pipelines = "pipelines",
    /// Loads to registers run an iteration ahead.
    Ahead = "ahead",
    /// A loop of a function whose iterations are small is one kernel; without it iterations are launches.
    LoopKernel = "loop_kernel",
    /// Kernels write what an iteration hands on where the next one reads it; without it that is copied.
    Forward = "forward",
    /// Code reads no clocks; without it loops say how long they take (`k.profile()`).
    Bare = "bare",
}

/// A set of passes that are left out.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Off(u32);

impl Off {
    pub fn has(self, step: Step) -> bool {
        self.0 >> step as u32 & 1 == 1
    }

    pub fn with(self, step: Step) -> Self {
        Self(self.0 | 1 << step as u32)
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Distinct for distinct sets.
    pub fn bits(self) -> u32 {
        self.0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn steps(self) -> impl Iterator<Item = Step> {
        Step::ALL.iter().copied().filter(move |&s| self.has(s))
    }

    /// The passes of these names; `place` says where they stand.
    pub fn named<'n>(
        names: impl IntoIterator<Item = &'n str>,
        place: &str,
    ) -> Result<Self, Diagnostics> {
        let mut off = Off::default();
        for name in names {
            let found = Step::ALL.iter().copied().find(|s| s.name() == name);
            let Some(step) = found else {
                let known: Vec<_> = Step::ALL.iter().map(|s| s.name()).collect();
                let message = format!(
                    "{place}: expected passes that can be left out ({}), got {name:?}",
                    known.join(", ")
                );
                let error = Diagnostic::new(Code::E_ARGUMENT, message);
                return Err(error.help("name one of them, or none").into());
            };
            off = off.with(step);
        }
        Ok(off)
    }

    /// As an attribute of `config`; none where everything runs.
    pub fn attr(self) -> Option<Attr> {
        (!self.is_empty()).then(|| Attr::words(self.steps().map(Step::name)))
    }

    /// What a function's `config` leaves out. Names that nothing has are no passes of it: whoever
    /// writes the attribute has looked them up.
    pub fn of<L: Level>(func: &Func<L>) -> Self {
        Self::in_attrs(&func.attrs)
    }

    pub fn in_attrs(attrs: &Attrs) -> Self {
        let config = attrs.get("config").and_then(Attr::as_dict);
        let Some(words) = config.and_then(|c| c.get("off")).and_then(Attr::as_list) else {
            return Off::default();
        };
        let words = words.iter().filter_map(Attr::as_word);
        let known = words.filter_map(|w| Step::ALL.iter().find(|s| s.name() == w));
        known.fold(Off::default(), |off, &step| off.with(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_others_refused() {
        let off = Off::named(["rotate", "epilogue"], "`off`").unwrap();
        assert!(off.has(Step::Rotate) && off.has(Step::Epilogue) && !off.has(Step::Pair));
        assert_eq!(off.attr().unwrap().to_string(), "[epilogue, rotate]");
        let errors = Off::named(["rotated"], "`off`").unwrap_err();
        let error = errors.errors().next().unwrap();
        assert_eq!(error.code, Code::E_ARGUMENT);
        assert!(error.message.contains("\"rotated\"") && error.message.contains("rotate, pair"));
    }
}
