//! A loop is elaborated again where its body shows that a variable must be carried in another way: with the
//! type of the values that a literal is merged with, or as the parts of a tuple.

use super::flow::Exits;
use super::literal::Weak;
use super::loops::Loop;
use super::tuple_parts::Parts;
use super::{Elab, Env};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::Code;
use tessera_ir::{BlockId, Type, Value};

/// What a try may have changed.
struct Saved {
    func: tessera_tile::TileFunc,
    diags: tessera_diag::Diagnostics,
    env: Env,
    block: BlockId,
    found: usize,
    weak: BTreeMap<Value, Weak>,
    widened: BTreeSet<Value>,
    weak_roots: BTreeMap<Value, BTreeSet<Value>>,
    weak_used: BTreeSet<Value>,
    open_values: BTreeSet<Value>,
    origins: BTreeMap<String, super::Origin>,
    printed: usize,
    tables: usize,
    emulated: bool,
    too_large: bool,
}

impl Elab<'_> {
    fn save(&mut self) -> Saved {
        Saved {
            func: self.func.clone(),
            diags: self.diags.clone(),
            env: self.env().clone(),
            block: self.block,
            found: self.found,
            weak: self.weak.clone(),
            widened: self.widened.clone(),
            weak_roots: self.weak_roots.clone(),
            weak_used: self.weak_used.clone(),
            open_values: self.open_values.clone(),
            origins: self.origins.clone(),
            printed: self.printed.len(),
            tables: self.tables.len(),
            emulated: self.emulated,
            too_large: self.too_large,
        }
    }

    fn restore(&mut self, saved: Saved) {
        self.func = saved.func;
        self.diags = saved.diags;
        *self.env() = saved.env;
        self.block = saved.block;
        self.found = saved.found;
        self.weak = saved.weak;
        self.widened = saved.widened;
        self.weak_roots = saved.weak_roots;
        self.weak_used = saved.weak_used;
        self.open_values = saved.open_values;
        self.origins = saved.origins;
        self.printed.truncate(saved.printed);
        // Parameters of the function that was, and what its diagnostics said once.
        self.tables.truncate(saved.tables);
        self.emulated = saved.emulated;
        self.too_large = saved.too_large;
    }

    /// Emits a loop. A variable that begins as a literal takes the type of the values it is merged
    /// with: until that is known it is weakly typed, and the body is elaborated again once it is.
    pub(super) fn repeat(&mut self, l: &Loop<'_>) -> Exits {
        let mut wanted: Vec<(String, Type)> = Vec::new();
        // Tuples that the body changes.
        let mut tuples: Vec<String> = Vec::new();
        let mut tries = 2 * l.changed().len() + 2;
        while tries > 0 {
            tries -= 1;
            let saved = self.save();
            match self.try_repeat(l, &wanted, &tuples) {
                Ok(exits) => return self.after_loop(l, exits),
                Err(again) => {
                    self.restore(saved);
                    wanted.retain(|(n, _)| *n != again.name);
                    match again.ty {
                        Some(ty) => wanted.push((again.name, ty)),
                        None => {
                            let parts = self.env().get(&again.name).and_then(Parts::of);
                            tries += 2 * parts.map_or(0, |p| p.names(&again.name).len());
                            tuples.push(again.name);
                        }
                    }
                }
            }
        }
        self.error_help(
            Code::E_TYPE,
            "expected the variables of the loop to keep their types",
            "begin each with the type it ends with: ts.tile.cast(0, ts.f32)",
        );
        Exits::none()
    }
}
