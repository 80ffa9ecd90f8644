//! What is known of a tile's padding along each axis.

use super::held::Held;
use tessera_ir::OpId;

/// Where raggedness came from: a block access and the axis of memory it may leave.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Root {
    pub access: OpId,
    pub axis: usize,
    /// The block may begin before the tensor, too.
    pub front: bool,
    pub spread: Spread,
    /// A mask of it whose bound ends beyond the tensor.
    pub mask: Option<OpId>,
}

impl Root {
    /// Of two origins the one that is harder to clear; the first where they are equal.
    pub fn worse(self, other: Root) -> Root {
        let hard = |r: Root| (r.spread != Spread::Ends, r.front);
        if hard(other) > hard(self) { other } else { self }
    }
}

/// Where along the axis the padding may be.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Spread {
    /// At its ends: a bounds condition identifies it.
    Ends,
    /// Anywhere, for a reshape divided or merged the axis.
    Reshaped,
    /// Anywhere, for a loop carries what it read at one position after another.
    Carried,
}

/// One axis, from the most to the least that is known.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) enum Axis {
    /// The whole value is a constant zero.
    Nil,
    /// Nothing along the axis is padding.
    Clean,
    /// There may be padding, and it is still zero.
    Zero(Root),
    /// There may be padding, and this is what it may be.
    Dirty(Root, Held),
}

impl Axis {
    /// Padding that holds this.
    pub fn padded(root: Root, held: Held) -> Axis {
        if held.is_zero() { Axis::Zero(root) } else { Axis::Dirty(root, held) }
    }

    pub fn root(self) -> Option<Root> {
        match self {
            Axis::Nil | Axis::Clean => None,
            Axis::Zero(r) | Axis::Dirty(r, _) => Some(r),
        }
    }

    pub fn is_zero(self) -> bool {
        matches!(self, Axis::Nil | Axis::Zero(_))
    }

    /// The contents of the padding; `None` where there is none.
    pub fn held(self) -> Option<Held> {
        match self {
            Axis::Clean => None,
            Axis::Nil | Axis::Zero(_) => Some(Held::ZERO),
            Axis::Dirty(_, held) => Some(held),
        }
    }

    /// The same padding, which a mask was meant to clear.
    pub fn let_through(self, mask: OpId) -> Axis {
        let through = |root: Root| Root { mask: root.mask.or(Some(mask)), ..root };
        match self {
            Axis::Zero(root) => Axis::Zero(through(root)),
            Axis::Dirty(root, held) => Axis::Dirty(through(root), held),
            other => other,
        }
    }

    /// The same padding, anywhere along the axis.
    pub fn spread(self, spread: Spread) -> Axis {
        let moved = |root: Root| match root.spread {
            Spread::Ends => Root { spread, ..root },
            _ => root,
        };
        match self {
            Axis::Zero(root) => Axis::Zero(moved(root)),
            Axis::Dirty(root, held) => Axis::Dirty(moved(root), held),
            other => other,
        }
    }

    /// The same padding with contents that are not known.
    pub fn spoiled(self) -> Axis {
        self.root().map_or(Axis::Clean, |root| Axis::Dirty(root, Held::Unknown))
    }

    fn rank(self) -> usize {
        match self {
            Axis::Nil => 0,
            Axis::Clean => 1,
            Axis::Zero(_) => 2,
            Axis::Dirty(..) => 3,
        }
    }

    /// One of two values, it is not known which. Numbers that differ are not known any more, so that
    /// what a loop carries comes to an end.
    pub fn join(self, other: Axis) -> Axis {
        match (self, other) {
            (Axis::Dirty(a, x), Axis::Dirty(b, y)) => {
                Axis::Dirty(a.worse(b), if x == y { x } else { Held::Unknown })
            }
            (Axis::Dirty(a, _), Axis::Zero(b)) | (Axis::Zero(b), Axis::Dirty(a, _)) => {
                Axis::Dirty(a.worse(b), Held::Unknown)
            }
            (Axis::Zero(a), Axis::Zero(b)) => Axis::Zero(a.worse(b)),
            (a, b) => {
                if b.rank() > a.rank() {
                    b
                } else {
                    a
                }
            }
        }
    }
}
