//! What a task does with elements of an array.

use std::fmt;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic};
use tessera_mesh::{Combine, IndexSet};

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Privilege {
    Read,
    Write,
    ReadWrite,
    /// Folds into the elements with this operator, and does not look at them otherwise.
    Reduce(Combine),
}

impl Privilege {
    /// Whether two tasks with these privileges on one element may run in either order, or together.
    pub fn commutes(self, other: Privilege) -> bool {
        match (self, other) {
            (Privilege::Read, Privilege::Read) => true,
            (Privilege::Reduce(a), Privilege::Reduce(b)) => a == b,
            (
                Privilege::Read | Privilege::Write | Privilege::ReadWrite | Privilege::Reduce(_),
                _,
            ) => false,
        }
    }

    /// `read`, `write`, `read_write`, `reduce_sum` and the other operators: the names of privileges in kernels.
    pub fn parse(name: &str) -> Option<Privilege> {
        match name {
            "read" => Some(Privilege::Read),
            "write" => Some(Privilege::Write),
            "read_write" => Some(Privilege::ReadWrite),
            _ => Combine::parse(name.strip_prefix("reduce_")?).map(Privilege::Reduce),
        }
    }
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Privilege::Read => f.write_str("read"),
            Privilege::Write => f.write_str("write"),
            Privilege::ReadWrite => f.write_str("read_write"),
            Privilege::Reduce(op) => write!(f, "reduce_{}", op.name()),
        }
    }
}

/// The elements at all combinations of positions of the dims, in one storage. Uses of one part share its positions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Use {
    pub storage: u64,
    pub index: Arc<[IndexSet]>,
    pub privilege: Privilege,
}

impl Use {
    /// Whether there is an element that both use.
    pub fn overlaps(&self, other: &Use) -> bool {
        self.storage == other.storage
            && self.index.len() == other.index.len()
            && self.index.iter().zip(&*other.index).all(|(a, b)| !a.is_disjoint(b))
    }

    /// Whether all elements of another use are among this one's.
    pub fn covers(&self, other: &Use) -> bool {
        self.storage == other.storage
            && self.index.len() == other.index.len()
            && (Arc::ptr_eq(&self.index, &other.index)
                || other.index.iter().any(IndexSet::is_empty)
                || other.index.iter().zip(&*self.index).all(|(b, a)| b.is_subset(a)))
    }

    pub fn interferes(&self, other: &Use) -> bool {
        !self.privilege.commutes(other.privilege) && self.overlaps(other)
    }

    /// `read 3[0:4, 1:8:2 + 9:10]`.
    pub fn parse(text: &str) -> Result<Use, Diagnostic> {
        let wrong = || {
            let text = format!("expected a use of elements, got `{text}`");
            Diagnostic::new(Code::E_SYNTAX, text)
                .help("write `read 3[0:4, 1:8:2]`: privilege, storage, and positions of each dim")
        };
        let (privilege, rest) = text.trim().split_once(' ').ok_or_else(wrong)?;
        let (storage, rest) = rest.split_once('[').ok_or_else(wrong)?;
        let inside = rest.strip_suffix(']').ok_or_else(wrong)?;
        let sets = inside.split(',').filter(|_| !inside.trim().is_empty());
        Ok(Use {
            storage: storage.trim().parse().map_err(|_| wrong())?,
            index: sets.map(|s| IndexSet::parse(s).ok_or_else(wrong)).collect::<Result<_, _>>()?,
            privilege: Privilege::parse(privilege).ok_or_else(wrong)?,
        })
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sets: Vec<String> = self.index.iter().map(IndexSet::to_string).collect();
        write!(f, "{} {}[{}]", self.privilege, self.storage, sets.join(", "))
    }
}
