//! Which functions stand for composites: kernels are chosen here, after derivatives and batching, for
//! the machine at hand.
//!
//! [`undecided`] walks a function as flattening does, with every extent a number, and lists composites
//! that nobody has decided about. The caller looks for a kernel for each, a function of the module with
//! the signature of the composite, and tells [`Chosen`]; functions of kernels may hold composites
//! again, so it looks again until the list is empty. Flattening puts the chosen function in place of the
//! composite, or its decomposition.

use crate::flatten::{bound, settled};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::dims::{Symbols, same_type, substitute_type};
use tessera_graph::{GraphFunc, GraphModule, GraphOp, call_results, walk};
use tessera_ir::{Attr, BlockId, Op, OpId, Type};

/// A composite on operands of these types.
#[derive(Clone, Debug)]
pub struct Site {
    pub name: String,
    pub decomposition: String,
    /// The decomposition of the composite whose block on a rank this is.
    pub whole: Option<String>,
    pub args: Vec<Type>,
    pub results: Vec<Type>,
    pub loc: Loc,
}

/// A decomposition, and the types of the operands as text.
type Key = (String, Vec<String>);

fn key(decomposition: &str, args: &[Type]) -> Key {
    (decomposition.to_string(), args.iter().map(Type::to_string).collect())
}

/// The functions that stand for composites; `None` for the decomposition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen(BTreeMap<Key, Option<String>>);

impl Chosen {
    /// Decides about a site. A function has to have the signature of the composite.
    pub fn decide(
        &mut self,
        module: &GraphModule,
        site: &Site,
        func: Option<String>,
    ) -> Result<(), Diagnostic> {
        if let Some(name) = &func {
            fits(module, site, name)?;
        }
        self.0.insert(key(&site.decomposition, &site.args), func);
        Ok(())
    }

    /// The functions that stand for composites.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.values().flatten().map(String::as_str)
    }

    /// The function in place of a composite.
    pub(crate) fn of<'a>(&'a self, op: &'a Op<tessera_graph::Graph>, args: &[Type]) -> &'a str {
        let own = walk::called(op).unwrap_or_default();
        match op.code {
            GraphOp::Composite if !self.0.is_empty() => {
                self.0.get(&key(own, args)).and_then(Option::as_deref).unwrap_or(own)
            }
            _ => own,
        }
    }
}

fn fits(module: &GraphModule, site: &Site, name: &str) -> Result<(), Diagnostic> {
    let Some(func) = module.func(name) else {
        let why = format!("expected a function of the module, got @{name}");
        return Err(Diagnostic::new(Code::E_NAME, why).at(site.loc.clone()));
    };
    let got = call_results(func, &site.args).map_err(|r| {
        let help = "report this: the function was made for these operands";
        r.at(site.loc.clone()).help(help)
    })?;
    let wanted = &site.results;
    if wanted.len() == got.len() && wanted.iter().zip(&got).all(|(a, b)| same_type(a, b)) {
        return Ok(());
    }
    let show = |types: &[Type]| types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
    let why = format!(
        "expected the kernel of `{}` to give ({}), as its decomposition does, got ({})",
        site.name,
        show(wanted),
        show(&got)
    );
    Err(Diagnostic::new(Code::E_TYPE, why)
        .at(site.loc.clone())
        .help("give results of the shapes and dtypes of the decomposition"))
}

/// The composites that the function runs and that are not decided, each once, in order of their use. Those in programs of ranks are
/// among them where `is_planned` says that the program is planned as a function of one rank.
pub fn undecided(
    module: &GraphModule,
    func: &str,
    args: &[Type],
    chosen: &Chosen,
    is_planned: &dyn Fn(&GraphFunc, OpId) -> bool,
) -> Result<Vec<Site>, Diagnostics> {
    let any = |f: &GraphFunc| f.ops.iter().any(|(_, op)| op.code == GraphOp::Composite);
    let mut found = Vec::new();
    if let Some(source) = module.func(func)
        && module.funcs.iter().any(any)
        && walk::call_order(module).is_ok()
    {
        let mut search = Search {
            module,
            chosen,
            is_planned,
            seen: BTreeSet::new(),
            listed: BTreeSet::new(),
            found,
        };
        search.function(source, args, &source.loc)?;
        found = search.found;
    }
    Ok(found)
}

struct Search<'m> {
    module: &'m GraphModule,
    chosen: &'m Chosen,
    is_planned: &'m dyn Fn(&GraphFunc, OpId) -> bool,
    /// Functions that were walked, for these arguments.
    seen: BTreeSet<Key>,
    listed: BTreeSet<Key>,
    found: Vec<Site>,
}

impl<'m> Search<'m> {
    fn function(
        &mut self,
        func: &'m GraphFunc,
        args: &[Type],
        loc: &Loc,
    ) -> Result<(), Diagnostics> {
        if !self.seen.insert(key(&func.name, args)) {
            return Ok(());
        }
        let params: Vec<_> = func.params().iter().map(|&p| func.ty(p).clone()).collect();
        let symbols = bound(func, &params, args, loc)?;
        self.block(func, func.body, &symbols)
    }

    fn block(
        &mut self,
        func: &'m GraphFunc,
        block: BlockId,
        symbols: &Symbols,
    ) -> Result<(), Diagnostics> {
        for &id in &func.blocks[block].ops {
            let op = &func.ops[id];
            let types = |values: &[tessera_ir::Value]| -> Result<Vec<Type>, Diagnostics> {
                values
                    .iter()
                    .map(|&v| settled(substitute_type(func.ty(v), symbols), &op.loc))
                    .collect()
            };
            // Composites of a rank's program are decomposed where it is written for all ranks.
            if op.code != GraphOp::Manual || (self.is_planned)(func, id) {
                for &region in &op.regions {
                    self.block(func, region, symbols)?;
                }
            }
            if !matches!(op.code, GraphOp::Call | GraphOp::Composite) {
                continue;
            }
            let args = types(&op.operands)?;
            let own = walk::called(op).unwrap_or_default();
            if op.code == GraphOp::Composite && !self.chosen.0.contains_key(&key(own, &args)) {
                if self.listed.insert(key(own, &args)) {
                    let name = op.attr("name").and_then(Attr::as_word).unwrap_or_default();
                    let whole = op.attr("whole").and_then(Attr::as_word).map(str::to_string);
                    self.found.push(Site {
                        name: name.to_string(),
                        decomposition: own.to_string(),
                        whole,
                        args,
                        results: types(&op.results)?,
                        loc: op.loc.clone(),
                    });
                }
                continue;
            }
            if let Some(inner) = self.module.func(self.chosen.of(op, &args)) {
                self.function(inner, &args, &op.loc)?;
            }
        }
        Ok(())
    }
}
