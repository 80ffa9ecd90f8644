//! How a user says where an array is: which dims are split over which axes of a mesh, and along which axes ranks hold contributions.

use crate::intervals::{IndexSet, Run};
use crate::scan::Scan;
use std::fmt;
use std::hash::{Hash, Hasher};
use tessera_diag::{Code, Diagnostic};

/// How contributions make a value.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Combine {
    Sum,
    Max,
    Min,
    Prod,
}

impl Combine {
    pub const ALL: [Combine; 4] = [Combine::Sum, Combine::Max, Combine::Min, Combine::Prod];

    pub fn name(self) -> &'static str {
        match self {
            Combine::Sum => "sum",
            Combine::Max => "max",
            Combine::Min => "min",
            Combine::Prod => "prod",
        }
    }

    pub fn parse(name: &str) -> Option<Combine> {
        Combine::ALL.into_iter().find(|c| c.name() == name)
    }
}

/// Which elements of a dim the ranks along an axis have.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Distribution {
    /// Of n elements over R ranks, rank r has `ceil(n / R)` from `r · ceil(n / R)` on.
    Block,
    /// Blocks of this many elements are dealt to the ranks in order.
    BlockCyclic(u64),
}

impl Distribution {
    /// What rank `r` of `ranks` has of `n` positions.
    pub fn positions(self, n: u64, ranks: u64, r: u64) -> IndexSet {
        match self {
            Distribution::Block => {
                let c = n.div_ceil(ranks);
                let at = |r: u64| r.checked_mul(c).map_or(n, |i| i.min(n));
                IndexSet::range(at(r), at(r + 1))
            }
            Distribution::BlockCyclic(b) => {
                let mut made = IndexSet::empty();
                if b == 1 {
                    let count = if r < n { (n - r).div_ceil(ranks) } else { 0 };
                    made.push(Run { start: r, step: ranks, count });
                    return made;
                }
                let mut block = r;
                while let Some(start) = block.checked_mul(b).filter(|s| *s < n) {
                    made.push(Run { start, step: 1, count: b.min(n - start) });
                    block += ranks;
                }
                made
            }
        }
    }
}

/// A dim of an array: by number, from the end where it is negative, or by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dim {
    At(i64),
    Named(String),
}

impl Dim {
    /// `row`, `col` and `batch` are dims by number.
    fn meaning(&self) -> Dim {
        match self {
            Dim::Named(name) => match name.as_str() {
                "row" => Dim::At(-2),
                "col" => Dim::At(-1),
                "batch" => Dim::At(0),
                _ => self.clone(),
            },
            Dim::At(_) => self.clone(),
        }
    }

    /// The dim's number in an array.
    pub fn number(&self, ndim: usize, names: &[String]) -> Result<usize, Diagnostic> {
        let wrong =
            |text: String, help: String| Err(Diagnostic::new(Code::E_PLACEMENT, text).help(help));
        if let Dim::Named(name) = self
            && let Some(at) = names.iter().position(|n| n == name)
        {
            return Ok(at);
        }
        match self.meaning() {
            Dim::At(at) => {
                let number = if at < 0 { at + ndim as i64 } else { at };
                if (0..ndim as i64).contains(&number) {
                    return Ok(number as usize);
                }
                let plural = if ndim == 1 { "" } else { "s" };
                wrong(
                    format!("expected a dim of an array with {ndim} dim{plural}, got {self}"),
                    "give a dim that the array has".to_owned(),
                )
            }
            Dim::Named(name) => {
                let known = if names.is_empty() {
                    "row, col, batch, and numbers".to_owned()
                } else {
                    format!("{}, row, col, batch, and numbers", names.join(", "))
                };
                wrong(
                    format!("expected a dim of the array, got \"{name}\""),
                    format!("its dims are called {known}"),
                )
            }
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::At(at) => write!(f, "{at}"),
            Dim::Named(name) => f.write_str(name),
        }
    }
}

/// A dim that is split: over these axes one after the other, coarsest first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Split {
    pub dim: Dim,
    pub axes: Vec<String>,
    pub how: Distribution,
}

/// A placement in the words of a user. Axes that it does not name hold copies. Specs are equal if they mean the same; `priority` and
/// `require_even` are no part of the meaning.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    pub splits: Vec<Split>,
    pub combine: Option<(Combine, Vec<String>)>,
    pub priority: u32,
    pub require_even: bool,
}

impl Spec {
    /// What is compared: splits in order of dims, without empty ones.
    fn meaning(&self) -> (Vec<Split>, Option<(Combine, Vec<String>)>) {
        let filled = self.splits.iter().filter(|s| !s.axes.is_empty());
        let mut splits: Vec<Split> =
            filled.map(|s| Split { dim: s.dim.meaning(), ..s.clone() }).collect();
        splits.sort();
        let mut combine = self.combine.clone().filter(|(_, axes)| !axes.is_empty());
        if let Some((_, axes)) = &mut combine {
            axes.sort();
        }
        (splits, combine)
    }

    pub fn parse(text: &str) -> Result<Spec, Diagnostic> {
        let mut scan = Scan::new(text);
        let mut made = Spec::default();
        scan.expect("[")?;
        let mut at = 0;
        while !scan.take("]") {
            if at > 0 {
                scan.expect(",")?;
            }
            let dim = match scan.integer()? {
                Some(number) => Dim::At(number),
                None => scan.name().map_or(Dim::At(at), |name| Dim::Named(name.to_owned())),
            };
            scan.expect("{")?;
            let split = split(&mut scan, dim)?;
            made.splits.push(split);
            at += 1;
        }
        if let Some(name) = scan.name() {
            match Combine::parse(name) {
                Some(op) => {
                    scan.expect("{")?;
                    made.combine = Some((op, scan.names("}")?));
                    made.require_even = scan.take("even");
                }
                None if name == "even" => made.require_even = true,
                None => return Err(scan.wrong("`sum`, `max`, `min`, `prod` or `even`")),
            }
        }
        if scan.take("@") {
            made.priority =
                u32::try_from(scan.count()?).map_err(|_| scan.wrong("a small number"))?;
        }
        scan.end()?;
        Ok(made)
    }
}

/// `tp, pp cyclic(4)}`.
fn split(scan: &mut Scan<'_>, dim: Dim) -> Result<Split, Diagnostic> {
    let mut made = Split { dim, axes: Vec::new(), how: Distribution::Block };
    while !scan.take("}") {
        if !made.axes.is_empty() {
            if scan.take("cyclic") {
                let mut block = 1;
                if scan.take("(") {
                    block = scan.count()?;
                    scan.expect(")")?;
                }
                if block == 0 {
                    return Err(scan.wrong("a block of at least 1 before this"));
                }
                made.how = Distribution::BlockCyclic(block);
                scan.expect("}")?;
                break;
            }
            scan.expect(",")?;
        }
        let axis = scan.name().ok_or_else(|| scan.wrong("an axis"))?;
        made.axes.push(axis.to_owned());
    }
    Ok(made)
}

impl PartialEq for Spec {
    fn eq(&self, other: &Spec) -> bool {
        self.meaning() == other.meaning()
    }
}

impl Eq for Spec {}

impl Hash for Spec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.meaning().hash(state);
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}", self.axes.join(", "))?;
        match self.how {
            Distribution::BlockCyclic(1) if !self.axes.is_empty() => f.write_str(" cyclic")?,
            Distribution::BlockCyclic(b) if !self.axes.is_empty() => write!(f, " cyclic({b})")?,
            Distribution::Block | Distribution::BlockCyclic(_) => {}
        }
        f.write_str("}")
    }
}

/// By position where all dims are numbers from the front, `[{dp}, {}, {tp}] sum{ep} @1`; else with names, `[row {dp}, -1 {tp}]`.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number =
            |s: &Split| if let Dim::At(at) = s.dim { usize::try_from(at).ok() } else { None };
        let numbers: Option<Vec<usize>> = self.splits.iter().map(number).collect();
        let in_order = |n: &Vec<usize>| {
            n.windows(2).all(|p| p[0] < p[1]) && n.last().is_none_or(|last| *last < 64)
        };
        let words: Vec<String> = match numbers.filter(in_order) {
            Some(numbers) => {
                let mut words = vec!["{}".to_owned(); numbers.last().map_or(0, |last| last + 1)];
                numbers.iter().zip(&self.splits).for_each(|(at, s)| words[*at] = s.to_string());
                words
            }
            None => self.splits.iter().map(|s| format!("{} {s}", s.dim)).collect(),
        };
        write!(f, "[{}]", words.join(", "))?;
        if let Some((op, axes)) = &self.combine {
            write!(f, " {}{{{}}}", op.name(), axes.join(", "))?;
        }
        if self.require_even {
            f.write_str(" even")?;
        }
        if self.priority > 0 {
            write!(f, " @{}", self.priority)?;
        }
        Ok(())
    }
}
