//! Random functions, made by the builder: what they print reads back as itself.

use proptest::prelude::*;
use tessera_diag::{Loc, SourceFile};
use tessera_ir::{Attr, BlockId, Builder, Func, OpSpec, PrintOptions, Shape, Type, Value, verify};
use tessera_numerics::{DType, ReduceOp, ScalarFn};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp, parse};

/// Draws choices from a list of bytes, and zeros after its end: shorter lists are smaller functions.
struct Choices<'b> {
    bytes: std::slice::Iter<'b, u8>,
    names: bool,
}

impl Choices<'_> {
    fn below(&mut self, n: usize) -> usize {
        self.bytes.next().map_or(0, |&b| b as usize % n)
    }

    fn done(&self) -> bool {
        self.bytes.len() == 0
    }

    /// Few names, odd ones among them, so that many values share one.
    fn name(&mut self) -> Option<&'static str> {
        let names = ["x", "x.1", "größe", "0", "7", "a b", "", "_", "x.1.1", "%"];
        let pick = self.below(2 * names.len());
        names.get(pick).copied().filter(|_| self.names)
    }
}

const FLOATS: [ScalarFn; 5] =
    [ScalarFn::Add, ScalarFn::Exp, ScalarFn::Fma, ScalarFn::Maximum, ScalarFn::Neg];
const CONSTANTS: [f64; 8] =
    [0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, 5e-324];

/// One op, or a loop or branch with ops inside. `scope` holds the f32 values that may be used.
fn op(
    c: &mut Choices<'_>,
    func: &mut TileFunc,
    block: BlockId,
    scope: &mut Vec<Value>,
    depth: usize,
) {
    let pick = scope[c.below(scope.len())];
    let scalar = matches!(func.ty(pick), Type::Scalar(_));
    let loc = Loc::span(&SourceFile::new("k.py", "", 1), c.below(9) as u32 + 1, 1, 1, 2);
    let mut b = Builder::at_end(func, block, loc.clone());
    let value = match c.below(if depth < 3 { 9 } else { 7 }) {
        0 => {
            let f = FLOATS[c.below(FLOATS.len())];
            b.ew(f, &vec![pick; f.arity()])
        }
        1 => b.constant(Type::Scalar(DType::F32), Attr::Float(CONSTANTS[c.below(CONSTANTS.len())])),
        2 if scalar => b.broadcast(pick, shape(c)),
        2 => b.reduce(pick, ReduceOp::ALL[c.below(4)], 0),
        3 => {
            let cond = b.ew(ScalarFn::Lt, &[pick, pick]);
            b.select(cond, pick, pick)
        }
        4 => {
            let int = b.ew(ScalarFn::IsNan, &[pick]);
            b.cast(int, DType::F32)
        }
        5 if !scalar => b.expand(pick, c.below(2)),
        5 | 6 => {
            let i = b.index(c.below(256) as i64 - 128);
            let mem = b.func.params()[0];
            let loaded = b.load(mem, &[i], &[[0, 8, 1][c.below(3)]]);
            b.store(
                mem,
                loaded,
                &[i],
                &[b.func.ty(loaded).static_shape().unwrap().first().copied().unwrap_or(0)],
            );
            loaded
        }
        7 => {
            let i = b.index(c.below(4) as i64);
            let ty = b.func.ty(pick).clone();
            let spec =
                OpSpec::new(TileOp::For, &[i, i, i]).group("init", &[pick]).result(ty.clone());
            let id = b.op(spec).unwrap();
            let body = b.func.ops[id].regions[0];
            b.func.add_arg(body, Type::INDEX, c.name());
            let carried = b.func.add_arg(body, ty.clone(), c.name());
            region(c, b.func, body, scope, carried, &ty, depth);
            func.ops[id].result()
        }
        _ => {
            let cond = b.constant(Type::BOOL, Attr::Bool(true));
            let ty = b.func.ty(pick).clone();
            let id = b.op(OpSpec::new(TileOp::If, &[cond]).result(ty.clone())).unwrap();
            for region_block in b.func.ops[id].regions.clone() {
                region(c, b.func, region_block, scope, pick, &ty, depth);
            }
            func.ops[id].result()
        }
    };
    if let Some(name) = c.name() {
        func.set_name(value, name);
    }
    scope.push(value);
}

fn shape(c: &mut Choices<'_>) -> Shape {
    (0..c.below(3) + 1).map(|_| ([1, 2, 8][c.below(3)]).into()).collect()
}

fn region(
    c: &mut Choices<'_>,
    func: &mut TileFunc,
    block: BlockId,
    scope: &[Value],
    given: Value,
    ty: &Type,
    depth: usize,
) {
    let mut inner = scope.to_vec();
    inner.push(given);
    for _ in 0..c.below(4) {
        op(c, func, block, &mut inner, depth + 1);
    }
    let last = inner.iter().rev().copied().find(|&v| func.ty(v) == ty).unwrap_or(given);
    Builder::at_end(func, block, Loc::unknown()).yield_(&[last]);
}

fn function(bytes: &[u8], names: bool) -> TileFunc {
    let mut c = Choices { bytes: bytes.iter(), names };
    let mut func = Func::<Tile>::new("random");
    func.attrs.set("kind", Attr::word("group"));
    let view = parse("func @f(%v: view<[n], f32, read_write>) {kind = group} {\n  tile.return\n}")
        .unwrap();
    let view = view.ty(view.params()[0]).clone();
    let body = func.body;
    func.add_arg(body, view, Some("v"));
    let mut scope = vec![func.add_arg(body, Type::Scalar(DType::F32), names.then_some("x"))];
    while !c.done() {
        op(&mut c, &mut func, body, &mut scope, 0);
    }
    Builder::at_end(&mut func, body, Loc::unknown()).return_();
    func
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_functions_read_back(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let func = function(&bytes, true);
        verify(&func).map_err(|e| TestCaseError::fail(e.render()))?;
        let text = func.to_string();
        let again = parse(&text).map_err(|e| TestCaseError::fail(format!("{text}\n{e}")))?;
        prop_assert_eq!(again.to_string(), text);
        prop_assert_eq!(again.hash(), func.hash());
        verify(&again).map_err(|e| TestCaseError::fail(e.render()))?;
    }

    #[test]
    fn printed_locations_read_back(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let func = function(&bytes, true);
        let locs = PrintOptions { locs: true };
        let text = func.to_text(locs);
        let again = parse(&text).map_err(|e| TestCaseError::fail(format!("{text}\n{e}")))?;
        // What had no place now has one in the text; all others keep theirs.
        for line in text.lines().filter(|l| l.contains("loc(")) {
            prop_assert!(again.to_text(locs).contains(line.trim_end_matches('}')), "{}", line);
        }
        prop_assert_eq!(again.hash(), func.hash());
    }

    #[test]
    fn hash_does_not_know_names(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(function(&bytes, true).hash(), function(&bytes, false).hash());
    }
}
