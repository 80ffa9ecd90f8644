//! Atomic changes of one element for each index.

use super::{Args, Handler::*, Rows, rows};
use crate::elab::Elab;
use crate::elab::val::{BlockRef, Const, Reach, Val};
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{Attr, OpSpec, Type};
use tessera_numerics::Accum;
use tessera_tile::TileOp;
use tessera_tile::ops::atomic::{ORDERS, SCOPES, combine};

pub const ROWS: Rows = rows! {
    Any "tile.atomic_add" "(ref, v, order=\"relaxed\", scope=\"device\")" Call(|e, a| atomic(e, a, "add")),
        "Adds to `t[i]` in one step and gives the old value; `i` may be a tile.";
    Any "tile.atomic_sub" "(ref, v, order=\"relaxed\", scope=\"device\")" Call(|e, a| atomic(e, a, "sub")),
        "Subtracts from `t[i]` in one step and gives the old value.";
    Any "tile.atomic_max" "(ref, v, order=\"relaxed\", scope=\"device\")" Call(|e, a| atomic(e, a, "max")),
        "Raises `t[i]` to the value in one step and gives the old value.";
    Any "tile.atomic_min" "(ref, v, order=\"relaxed\", scope=\"device\")" Call(|e, a| atomic(e, a, "min")),
        "Lowers `t[i]` to the value in one step and gives the old value.";
    Any "tile.atomic_and" "(ref, v, order=\"relaxed\", scope=\"device\")" Call(|e, a| atomic(e, a, "and")),
        "Bitwise and into `t[i]` in one step; gives the old value.";
    Any "tile.atomic_or" "(ref, v, order=\"relaxed\", scope=\"device\")" Call(|e, a| atomic(e, a, "or")),
        "Bitwise or into `t[i]` in one step; gives the old value.";
    Any "tile.atomic_xor" "(ref, v, order=\"relaxed\", scope=\"device\")" Call(|e, a| atomic(e, a, "xor")),
        "Bitwise exclusive or into `t[i]` in one step; gives the old value.";
    Any "tile.atomic_exchange" "(ref, v, order=\"relaxed\", scope=\"device\")" Call(|e, a| atomic(e, a, "exchange")),
        "Puts the value into `t[i]` and gives the old one.";
    Any "tile.atomic_cas" "(ref, expected, v, order=\"relaxed\", scope=\"device\")" Call(|e, a| atomic(e, a, "cas")),
        "Puts the value into `t[i]` where `expected` stands (the same bits); gives what stood there.";
};

/// A word of a closed set.
fn word(
    e: &mut Elab<'_>,
    args: &Args,
    name: &str,
    default: &str,
    legal: &[&str],
) -> Option<String> {
    let given = match args.get(name) {
        Val::None => return Some(default.to_string()),
        Val::Const(Const::Str(s)) if name == "scope" && s == "group" => "block".to_string(),
        Val::Const(Const::Str(s)) => s,
        other => e.describe(&other),
    };
    if legal.contains(&given.as_str()) {
        return Some(given);
    }
    let list: Vec<_> = legal.iter().map(|l| format!("{l:?}")).collect();
    e.report(
        Diagnostic::new(
            Code::E_ARGUMENT,
            format!("expected `{name}` among {}, got {given:?}", list.join(" ")),
        )
        .help(format!("write for example {}", list[0]))
        .at(args.loc(name)),
    );
    None
}

fn atomic(e: &mut Elab<'_>, args: &mut Args, op: &str) -> Val {
    let block = match args.get("ref") {
        Val::Block(block) => *block,
        other => {
            let what = e.describe(&other);
            return e.report(
                Diagnostic::new(
                    Code::E_TYPE,
                    format!("expected an element of a parameter or shared buffer, got {what}"),
                )
                .at(args.loc("ref"))
                .help(format!("name it by its index: ts.tile.atomic_{op}(t[i], v)")),
            );
        }
    };
    if e.is_packed(block.mem) {
        let why = "there are no atomic changes of half a byte";
        e.refuse_packed(&block, why, "make the array one element a byte, without `@packed`");
        return Val::Poison;
    }
    let (Some(order), Some(scope)) =
        (word(e, args, "order", "relaxed", &ORDERS), word(e, args, "scope", "device", &SCOPES))
    else {
        return Val::Poison;
    };
    if scope == "cluster" {
        return e.error_help(
            Code::E_UNSUPPORTED,
            "the scope \"cluster\" is reserved: clusters are formed by the compiler",
            "use scope=\"block\" or scope=\"device\"",
        );
    }
    let (v, expected) = (args.get("v"), args.get("expected"));
    e.atomic_block(&block, &v, Some(expected).filter(|x| *x != Val::None), op, &order, &scope)
}

impl Elab<'_> {
    /// Changes the elements of a block and gives the old ones.
    pub fn atomic_block(
        &mut self,
        block: &BlockRef,
        value: &Val,
        expected: Option<Val>,
        op: &str,
        order: &str,
        scope: &str,
    ) -> Val {
        if block.reach.iter().any(|r| matches!(r, Reach::Span(_))) {
            return self.error_help(
                Code::E_UNSUPPORTED,
                format!("expected a scalar or an index tile for each axis of an atomic {op}, got a slice"),
                "give positions: `t[i0 + ts.tile.arange(n)]`",
            );
        }
        let mem = self.ty(block.mem).clone();
        let dtype = match (&mem, combine(op)) {
            (_, None) => mem.dtype(),
            (Type::View { elem, .. }, Some(_)) => match elem.accumulator() {
                Accum::Type(dtype) => dtype,
                Accum::Fp32Fast => tessera_numerics::DType::F32,
            },
            (_, Some(_)) => mem.dtype().compute(),
        };
        if let Some(f) = combine(op)
            && !f.accepts(dtype)
        {
            return self.error_help(
                Code::E_TYPE,
                format!("expected elements that an atomic {op} combines, got {}", mem.dtype()),
                "declare the array with an integer dtype, such as ts.i32",
            );
        }
        let Some(value) = self.fit_block(block, value, Some(dtype)) else { return Val::Poison };
        let ty = Type::value(self.block_shape(block), mem.dtype());
        let mut spec = OpSpec::new(TileOp::Atomic, &[block.mem, value])
            .group("at", &block.at)
            .attr("op", Attr::word(op))
            .result(ty);
        if let Some(expected) = expected {
            match self.fit_block(block, &expected, Some(dtype)) {
                Some(v) => spec = spec.group("expected", &[v]),
                None => return Val::Poison,
            }
        }
        if order != "relaxed" {
            spec = spec.attr("order", Attr::word(order));
        }
        if scope != "device" {
            spec = spec.attr("scope", Attr::word(scope));
        }
        self.b().value(spec).map_or(Val::Poison, Val::Rt)
    }
}
