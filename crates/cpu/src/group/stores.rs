//! Stores that share one nest.
//!
//! Before: a valid group function. After: runs of stores, each of which is emitted as one nest at
//! its last store. Common inputs of several results are loaded and computed once. The stores of a
//! run have one shape, write to different memories, and none of them reads what another writes
//! except at the same elements. Between them are only tiles that are expressions, and scalars that
//! are not loaded.

use super::group_plan::{is_expression, is_pointwise, same_elements};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, OpId, Value};
use tessera_tile::{TileFunc, TileOp};

/// Parameters that are one memory: for each that is read, the written one.
pub struct Alias(BTreeMap<Value, Value>);

impl Alias {
    pub fn of(func: &TileFunc) -> Self {
        let pairs = func.attrs.get("alias").and_then(Attr::as_ints).unwrap_or_default();
        let param = |place: i64| func.params().get(usize::try_from(place).ok()?).copied();
        let one = |pair: &[i64]| Some((param(pair[0])?, param(pair[1])?));
        Self(pairs.chunks_exact(2).filter_map(one).collect())
    }

    /// The memory under the name that it is written by.
    pub fn memory(&self, v: Value) -> Value {
        self.0.get(&v).copied().unwrap_or(v)
    }
}

/// More would not leave room in the registers for what they share.
const MOST: usize = 8;

/// For each store of a run of two or more, the run.
pub fn runs(func: &TileFunc, alias: &Alias) -> BTreeMap<OpId, Vec<OpId>> {
    let mut out = BTreeMap::new();
    let mut run: Vec<Store> = Vec::new();
    let mut end = |run: &mut Vec<Store>| {
        let ids: Vec<OpId> = run.drain(..).map(|s| s.id).collect();
        if ids.len() > 1 {
            out.extend(ids.iter().map(|&id| (id, ids.clone())));
        }
    };
    for block in func.blocks.ids() {
        for &id in &func.blocks[block].ops {
            let op = &func.ops[id];
            match op.code {
                TileOp::Store => {
                    let store = Store::of(func, alias, id);
                    if !store.as_ref().is_some_and(|s| s.joins(func, alias, &run)) {
                        end(&mut run);
                    }
                    run.extend(store);
                }
                TileOp::Load | TileOp::Gather => {
                    // A scalar is loaded at its op, a tile after the stores before it.
                    let memory = alias.memory(op.operands[0]);
                    let written = |s: &Store| func.ops[s.id].operands[0] == memory;
                    if func.ty(op.result()).rank() == 0 || run.iter().any(written) {
                        end(&mut run);
                    }
                }
                _ if is_expression(func, id) => {}
                _ => end(&mut run),
            }
        }
        end(&mut run);
    }
    out
}

struct Store {
    id: OpId,
    /// The loads that its elements are computed from, and whether each only at its own position.
    reads: BTreeSet<(OpId, bool)>,
}

impl Store {
    /// Nothing for a store of one number, of what other ops write to memory by themselves, or of what reads the memory
    /// at other places.
    fn of(func: &TileFunc, alias: &Alias, id: OpId) -> Option<Self> {
        let op = &func.ops[id];
        if func.ty(op.operands[1]).rank() == 0 {
            return None;
        }
        let mut list = vec![(op.operands[1], true)];
        list.extend(op.group("mask").iter().map(|&v| (v, true)));
        let (mut reads, mut seen) = (BTreeSet::new(), BTreeSet::new());
        while let Some((v, straight)) = list.pop() {
            let Some(def) = func.def_id(v).filter(|_| seen.insert((v, straight))) else { continue };
            let made = &func.ops[def];
            let operands = |straight: bool| made.operands.iter().map(move |&v| (v, straight));
            match made.code {
                TileOp::Scan | TileOp::Mma => return None,
                TileOp::Load => {
                    reads.insert((def, straight));
                    list.extend(operands(false).skip(1));
                }
                TileOp::Gather => {
                    reads.insert((def, false));
                    list.extend(operands(false).skip(1));
                }
                _ if is_pointwise(made.code) => list.extend(operands(straight)),
                _ if is_expression(func, def) => list.extend(operands(false)),
                _ => {}
            }
        }
        let store = Self { id, reads };
        store.leaves_alone(func, alias, &store).then_some(store)
    }

    /// Whether what this one reads is not what the other writes, but for the same elements.
    fn leaves_alone(&self, func: &TileFunc, alias: &Alias, other: &Self) -> bool {
        let written = func.ops[other.id].operands[0];
        self.reads.iter().all(|&(load, straight)| {
            alias.memory(func.ops[load].operands[0]) != written
                || (straight && same_elements(func, load, other.id))
        })
    }

    fn joins(&self, func: &TileFunc, alias: &Alias, run: &[Store]) -> bool {
        let shape = |s: &Self| func.ty(func.ops[s.id].operands[1]).static_shape();
        let memory = |s: &Self| func.ops[s.id].operands[0];
        let apart = |s: &Self| {
            memory(s) != memory(self)
                && s.leaves_alone(func, alias, self)
                && self.leaves_alone(func, alias, s)
        };
        run.len() < MOST && run.iter().all(|s| shape(s) == shape(self) && apart(s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of stores in each run, for a body of loads and stores of `%x`, `%y` and `%z` at block `%at`.
    fn lengths(attrs: &str, body: &str) -> Vec<usize> {
        let text = format!(
            "func @k(%x: view<[8], f32, read>, %y: view<[8], f32, write>, %z: view<[8], f32, write>, %w: view<[8], f32, read_write>) {{kind = group, grid = [2]{attrs}}} {{
  %p = tile.program_id {{axis = 0}} : i64
  %four = tile.const {{value = 4}} : i64
  %at = tile.mul %p, %four : i64
  %a = tile.load %x at(%at) {{extent = [4]}} : tile<4xf32>
  %b = tile.add %a, %a : tile<4xf32>
{body}
  tile.return
}}"
        );
        let func = tessera_tile::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        let found = runs(&func, &Alias::of(&func));
        let mut out: Vec<usize> = Vec::new();
        for (id, run) in &found {
            if run.first() == Some(id) {
                out.push(run.len());
            }
        }
        out
    }

    const STORE_Y: &str = "  tile.store %y, %b at(%at) {extent = [4]}\n";

    #[test]
    fn stores_of_one_shape_share_a_nest() {
        let body = format!("{STORE_Y}  tile.store %z, %a at(%at) {{extent = [4]}}\n");
        assert_eq!(lengths("", &body), [2]);
    }

    #[test]
    fn what_was_written_is_read_after_it() {
        let body = "  tile.store %w, %b at(%at) {extent = [4]}
  %c = tile.load %w at(%at) {extent = [4]} : tile<4xf32>
  tile.store %z, %c at(%at) {extent = [4]}";
        assert!(lengths("", body).is_empty());
    }

    #[test]
    fn one_memory_under_two_names_is_read_before_it_is_written() {
        // The same elements, read before both are written.
        let same = format!("{STORE_Y}  tile.store %z, %a at(%at) {{extent = [4]}}\n");
        assert_eq!(lengths(", alias = [0, 1]", &same), [2]);
        // Others than those that are written.
        let other = "  %c = tile.load %x at(%p) {extent = [4]} : tile<4xf32>
  tile.store %y, %b at(%at) {extent = [4]}
  tile.store %z, %c at(%at) {extent = [4]}";
        assert_eq!(lengths("", other), [2]);
        assert!(lengths(", alias = [0, 1]", other).is_empty());
    }
}
