//! Making ops. An [`OpSpec`] says what the op is; a [`Builder`] puts it where it stands and gives
//! its results their types, by the row's inference where none are written.

use crate::{
    Attr, Attrs, BlockId, Func, InferContext, Level, Op, OpId, Opcode, RegionSpec, Type, Value,
    ValueData, ValueDef,
};
use std::sync::Arc;
use tessera_diag::Loc;

/// An op not yet in a function.
#[derive(Clone, Debug)]
pub struct OpSpec<L: Level> {
    pub code: L::Op,
    pub operands: Vec<Value>,
    pub groups: Vec<(&'static str, Vec<Value>)>,
    pub attrs: Attrs,
    pub results: Option<Vec<Type>>,
    /// Whether the op has the region that its row makes optional.
    pub optional_region: bool,
}

impl<L: Level> OpSpec<L> {
    pub fn new(code: L::Op, operands: &[Value]) -> Self {
        Self {
            code,
            operands: operands.to_vec(),
            groups: Vec::new(),
            attrs: Attrs::new(),
            results: None,
            optional_region: false,
        }
    }

    /// With the optional region, where `has`.
    pub fn optional_region(mut self, has: bool) -> Self {
        self.optional_region = has;
        self
    }

    pub fn group(mut self, name: &'static str, values: &[Value]) -> Self {
        self.groups.push((name, values.to_vec()));
        self
    }

    pub fn attr(mut self, name: &str, value: Attr) -> Self {
        self.attrs.set(name, value);
        self
    }

    pub fn result(mut self, ty: Type) -> Self {
        self.results.get_or_insert_default().push(ty);
        self
    }

    pub fn results(mut self, types: Vec<Type>) -> Self {
        self.results = Some(types);
        self
    }
}

impl<L: Level> Func<L> {
    /// Puts an op into `block` at `place`. Region blocks are made, empty, one for each of the row
    /// that the op has.
    /// `Err` says why the result types cannot be inferred.
    pub fn insert(
        &mut self,
        block: BlockId,
        place: usize,
        spec: OpSpec<L>,
        loc: Loc,
    ) -> Result<OpId, String> {
        let info = spec.code.info();
        if let Some((name, _)) =
            spec.groups.iter().find(|(n, _)| !info.groups.iter().any(|g| g.name == *n))
        {
            return Err(format!(
                "expected a group of `{}.{}`, got `{name}`",
                L::PREFIX,
                spec.code.mnemonic()
            ));
        }
        let mut attrs = spec.attrs;
        let names: Vec<_> = info.attrs.iter().map(|a| a.name).collect();
        attrs.arrange(&names);
        let types = match (spec.results, info.infer) {
            (Some(types), _) => types,
            (None, _) if info.results == Some(0) => Vec::new(),
            // Inference may look at every operand of the row.
            (None, Some(_)) if spec.operands.len() != info.operands.len() => {
                let (wanted, got) = (info.operands.len(), spec.operands.len());
                return Err(format!("expected {wanted} operands, got {got}"));
            }
            (None, Some(infer)) => {
                let types: Vec<_> = spec.operands.iter().map(|v| self.ty(*v).clone()).collect();
                let groups: Vec<_> = spec
                    .groups
                    .iter()
                    .map(|(n, vs)| (*n, vs.iter().map(|v| self.ty(*v).clone()).collect()))
                    .collect();
                infer(&InferContext { operands: &types, groups: &groups, attrs: &attrs })?
            }
            // A loop or a branch without types gives nothing.
            (None, None) if info.results.is_none() => Vec::new(),
            (None, None) => {
                return Err(format!(
                    "expected a result type after `:`, `{}.{}` does not imply one",
                    L::PREFIX,
                    spec.code.mnemonic()
                ));
            }
        };
        let mut operands = spec.operands;
        let mut group_lens = Vec::with_capacity(info.groups.len());
        for row in info.groups {
            let given: Vec<Value> = spec
                .groups
                .iter()
                .filter(|(n, _)| *n == row.name)
                .flat_map(|(_, v)| v.clone())
                .collect();
            group_lens.push(given.len());
            operands.extend(given);
        }
        let id = self.ops.push(Op {
            code: spec.code,
            operands,
            group_lens,
            results: Vec::new(),
            attrs,
            regions: Vec::new(),
            loc,
            block,
        });
        for (index, ty) in types.into_iter().enumerate() {
            let value =
                self.values.push(ValueData { ty, name: None, def: ValueDef::Result(id, index) });
            self.ops[id].results.push(value);
        }
        let has = |r: &&RegionSpec| !r.optional || spec.optional_region;
        for _ in info.regions.iter().filter(has) {
            let region = self.add_block(Some(id));
            self.ops[id].regions.push(region);
        }
        self.blocks[block].ops.insert(place, id);
        Ok(id)
    }
}

/// Appends ops at a place that moves along.
pub struct Builder<'f, L: Level> {
    pub func: &'f mut Func<L>,
    pub block: BlockId,
    /// Where the next op goes; `None` is the end of the block.
    pub place: Option<usize>,
    pub loc: Loc,
}

impl<'f, L: Level> Builder<'f, L> {
    pub fn at_end(func: &'f mut Func<L>, block: BlockId, loc: Loc) -> Self {
        Self { func, block, place: None, loc }
    }

    /// Before the op that stands at `place` in `block`.
    pub fn before(func: &'f mut Func<L>, block: BlockId, place: usize, loc: Loc) -> Self {
        Self { func, block, place: Some(place), loc }
    }

    pub fn op(&mut self, spec: OpSpec<L>) -> Result<OpId, String> {
        let place = self.place.unwrap_or(self.func.blocks[self.block].ops.len());
        let id = self.func.insert(self.block, place, spec, self.loc.clone())?;
        if let Some(place) = &mut self.place {
            *place += 1;
        }
        Ok(id)
    }

    /// An op with one result.
    pub fn value(&mut self, spec: OpSpec<L>) -> Result<Value, String> {
        let id = self.op(spec)?;
        Ok(self.func.ops[id].result())
    }

    pub fn name(&mut self, value: Value, name: &str) {
        self.func.values[value].name = Some(Arc::from(name));
    }
}
