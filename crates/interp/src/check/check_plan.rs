//! Static facts about a program: the names and locations of its ops and memory, which integers
//! become indices, and which reads are followed by a mask.

use super::access::{Touch, accesses};
use crate::program::{Action, Change, Inst, ParamKind, Program};
use tessera_diag::Loc;
use tessera_ir::{Attr, Privilege, Value};
use tessera_numerics::ReduceOp;
use tessera_support::Entity;
use tessera_tile::{KernelKind, TileFunc, TileOp};

#[derive(Debug)]
pub(crate) struct CheckPlan {
    pub kind: KernelKind,
    /// By the index of the op.
    pub sites: Vec<Site>,
    /// By slot: what memory it names, if any.
    pub memory: Vec<Option<Place>>,
    /// By slot: the extents of the tile; none for scalars.
    pub shapes: Vec<Vec<i64>>,
    /// By slot: whether the value reaches an index through integer arithmetic.
    pub feeds: Vec<bool>,
    /// By slot: positions that the program itself set outside for some elements, as a mask with a
    /// negative constant does.
    pub names_outside: Vec<bool>,
    /// Whether the kernel orders memory itself, by acquire and release.
    pub orders: bool,
    /// Whether it says what groups own, by `owned` and `unique`.
    pub claims: bool,
    /// Whether it uses `cas` or `exchange` to take turns, as locks do.
    pub locks: bool,
}

#[derive(Debug)]
pub(crate) struct Site {
    pub loc: Loc,
    /// The op's name without the level's prefix.
    pub name: &'static str,
    pub result: Option<usize>,
    /// How the op writes to memory, where it does.
    pub writes: Touch,
    /// A read whose only use is a select: where the condition is false, the read does not count.
    /// The front end emits `load(…, mask=m)` this way.
    pub guard: Option<Guard>,
    /// The zero of a variable that no iteration of its loop assigned.
    pub unset: bool,
}

#[derive(Copy, Clone, Debug)]
pub(crate) struct Guard {
    /// The condition.
    pub slot: usize,
    /// The value of the condition where the read counts.
    pub holds: bool,
}

/// An argument, or a buffer of the group.
#[derive(Debug)]
pub(crate) struct Place {
    pub name: String,
    /// Whether any op writes to it: there are no races on memory that is only read.
    pub written: bool,
    /// The operator of a `reduce_*` parameter.
    pub reduces: Option<ReduceOp>,
}

impl CheckPlan {
    pub fn new(func: &TileFunc, program: &Program) -> Self {
        let (mut memory, mut shapes) = (Vec::new(), vec![Vec::new(); program.slots]);
        memory.resize_with(program.slots, || None);
        for (value, data) in func.values.iter() {
            let slot = value.index();
            shapes[slot] = data.ty.shape().iter().filter_map(|d| d.as_static()).collect();
        }
        for param in &program.params {
            if let ParamKind::View { privilege, .. } = &param.kind {
                let (name, reduces) = (param.name.clone(), operator(*privilege));
                memory[param.slot] = Some(Place { name, written: false, reduces });
            }
        }
        let names: Vec<_> = func.values.iter().map(|(v, _)| func.name_of(v)).collect();
        for inst in insts(program) {
            if let (Action::BufAlloc { .. }, &[slot]) = (&inst.action, &inst.results[..]) {
                let name = names[slot].unwrap_or("shared memory").to_string();
                memory[slot] = Some(Place { name, written: true, reduces: None });
            }
        }
        let names_outside = func.values.ids().map(|v| names_outside(func, v)).collect();
        let mut plan = Self {
            kind: program.kind,
            sites: vec![],
            memory,
            shapes,
            feeds: vec![],
            names_outside,
            orders: insts(program).any(|i| {
                matches!(i.action, Action::Atomic { acquire, release, .. } if acquire || release)
            }),
            claims: insts(program).any(|i| {
                matches!(
                    i.action,
                    Action::Owned { .. }
                        | Action::Store { unique: true, .. }
                        | Action::Scatter { unique: true, .. }
                )
            }),
            locks: insts(program).any(|i| {
                matches!(&i.action, Action::Atomic { change, .. } if !matches!(change, Change::Fold(_)))
            }),
        };
        plan.sites.resize_with(program.sites, Site::nowhere);
        for inst in insts(program) {
            let site = &mut plan.sites[inst.site];
            (site.loc, site.name) = (inst.loc.clone(), name_of(&inst.action));
            site.result = inst.results.first().copied();
            site.unset = matches!(&inst.action, Action::Const(n) if program.unset.contains(n));
            for access in accesses(inst, program.kind, &plan.memory) {
                let place = inst.args.get(access.memory).and_then(|a| plan.memory[a.slot].as_mut());
                if access.touch == Touch::Own {
                    site.writes = access.touch;
                } else if let Some(place) = place.filter(|_| access.touch != Touch::Read) {
                    place.written = true;
                    site.writes = access.touch;
                }
            }
        }
        plan.guards(program);
        plan.feeds = feeds(program);
        plan
    }

    /// Finds reads whose only use, apart from a conversion, is a select.
    fn guards(&mut self, program: &Program) {
        let mut uses: Vec<Vec<(&Inst, usize)>> = vec![Vec::new(); program.slots];
        let mut yielded = vec![false; program.slots];
        for block in &program.blocks {
            for inst in &block.insts {
                inst.args.iter().enumerate().for_each(|(i, a)| uses[a.slot].push((inst, i)));
            }
            block.yields.iter().for_each(|a| yielded[a.slot] = true);
        }
        for inst in insts(program) {
            if !matches!(inst.action, Action::Load { .. } | Action::Gather { .. }) {
                continue;
            }
            // The one use of a result, if there is just one.
            let user = |at: &Inst| match (&at.results[..], yielded[at.results[0]]) {
                (&[slot], false) if uses[slot].len() == 1 => uses[slot].first().copied(),
                _ => None,
            };
            let mut next = user(inst);
            while let Some((converts, _)) = next
                && let Action::Cast { .. } = converts.action
            {
                next = user(converts);
            }
            if let Some((select, i @ (1 | 2))) = next
                && let Action::Select = select.action
            {
                let guard = Guard { slot: select.args[0].slot, holds: i == 1 };
                self.sites[inst.site].guard = Some(guard);
            }
        }
    }
}

impl Site {
    fn nowhere() -> Self {
        Self {
            loc: Loc::unknown(),
            name: "",
            result: None,
            writes: Touch::Write,
            guard: None,
            unset: false,
        }
    }
}

/// Whether a value, apart from conversion and shape, is a select with a negative constant.
fn names_outside(func: &TileFunc, value: Value) -> bool {
    let Some(op) = func.def(value) else { return false };
    let negative = |v: Value| {
        let mut v = v;
        while let Some(op) = func.def(v)
            && matches!(op.code, TileOp::Broadcast | TileOp::Cast | TileOp::Expand)
        {
            v = op.operands[0];
        }
        let constant = func.def(v).and_then(|op| op.attr("value")).and_then(Attr::as_int);
        constant.is_some_and(|c| c < 0)
    };
    match op.code {
        TileOp::Select => negative(op.operands[1]) || negative(op.operands[2]),
        TileOp::Broadcast | TileOp::Cast | TileOp::Expand => names_outside(func, op.operands[0]),
        _ => false,
    }
}

fn insts(program: &Program) -> impl Iterator<Item = &Inst> {
    program.blocks.iter().flat_map(|b| &b.insts)
}

fn operator(privilege: Privilege) -> Option<ReduceOp> {
    match privilege {
        Privilege::ReduceSum => Some(ReduceOp::Sum),
        Privilege::ReduceMax => Some(ReduceOp::Max),
        Privilege::ReduceMin => Some(ReduceOp::Min),
        Privilege::ReduceProd => Some(ReduceOp::Prod),
        Privilege::Read | Privilege::Write | Privilege::ReadWrite => None,
    }
}

/// Backwards from the index operands, through arithmetic, conversions, shapes and control flow, to
/// a fixed point. Loads end the search.
fn feeds(program: &Program) -> Vec<bool> {
    let mut feeds = vec![false; program.slots];
    let none = Vec::new();
    for inst in insts(program) {
        for access in accesses(inst, program.kind, &none) {
            let index = inst.args.iter().skip(access.at).take(access.rank);
            index.for_each(|a| feeds[a.slot] = true);
        }
    }
    loop {
        let before = feeds.iter().filter(|&&f| f).count();
        for inst in insts(program) {
            spread(program, inst, &mut feeds);
        }
        if feeds.iter().filter(|&&f| f).count() == before {
            return feeds;
        }
    }
}

fn spread(program: &Program, inst: &Inst, feeds: &mut [bool]) {
    let yields = |block: usize| &program.blocks[block].yields;
    let fed = inst.results.iter().any(|&r| feeds[r]);
    match &inst.action {
        Action::Ew { .. }
        | Action::Cast { .. }
        | Action::Same
        | Action::Rearrange { .. }
        | Action::Reduce { .. }
        | Action::Scan { .. }
            if fed =>
        {
            inst.args.iter().for_each(|a| feeds[a.slot] = true);
        }
        Action::Select if fed => inst.args[1..].iter().for_each(|a| feeds[a.slot] = true),
        Action::If { then, otherwise } => {
            for (i, &r) in inst.results.iter().enumerate() {
                if feeds[r] {
                    let ends = [*then, *otherwise].into_iter().filter_map(|b| yields(b).get(i));
                    ends.for_each(|a| feeds[a.slot] = true);
                }
            }
        }
        Action::For { body } => {
            let args = &program.blocks[*body].args;
            if args.first().is_some_and(|&position| feeds[position]) {
                inst.args.iter().take(3).for_each(|a| feeds[a.slot] = true);
            }
            carried(inst, 3, &args[1.min(args.len())..], yields(*body), feeds);
        }
        Action::While { cond, body } => {
            carried(inst, 0, &program.blocks[*cond].args, &[], feeds);
            carried(inst, 0, &program.blocks[*body].args, yields(*body), feeds);
        }
        _ => {}
    }
}

/// A carried value has four names: the operand, the block's argument, what is yielded, the result.
fn carried(
    inst: &Inst,
    first: usize,
    args: &[usize],
    yields: &[crate::program::Arg],
    feeds: &mut [bool],
) {
    for (i, &result) in inst.results.iter().enumerate() {
        let mut slots = vec![result];
        slots.extend(args.get(i));
        slots.extend(yields.get(i).map(|a| a.slot));
        slots.extend(inst.args.get(first + i).map(|a| a.slot));
        if slots.iter().any(|&s| feeds[s]) {
            slots.iter().for_each(|&s| feeds[s] = true);
        }
    }
}

/// The name of an op that can make a NaN.
fn name_of(action: &Action) -> &'static str {
    match action {
        Action::Ew { f, .. } => f.name(),
        Action::Cast { .. } => "cast",
        Action::Mma { .. } => "mma",
        Action::Reduce { op, .. } => op.name(),
        Action::Scan { .. } => "scan",
        Action::Accumulate { .. } => "accumulate",
        _ => "the operation",
    }
}
