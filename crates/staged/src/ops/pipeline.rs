//! Pipelines. The order of their ops is a rule on the whole function; see `verify/`.

use super::bulk::block;
use super::smem::made_once;
use crate::{Staged, StagedOp};
use tessera_diag::Code;
use tessera_ir::{Attr, Field, Func, InferContext, OpErrors, OpId, Type};
use tessera_tile::TileOp;

pub fn verify_create(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    made_once(func, id, errors);
    let ty = func.ty(func.ops[id].result());
    match ty {
        Type::Pipeline { fields, .. } if !fields.is_empty() => {}
        _ => errors.ty(format!("expected a pipeline with fields, got {ty}")),
    }
}

pub fn infer_stage(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    match c.operands.first() {
        Some(Type::Pipeline { fields, .. }) => Ok(vec![Type::Stage { fields: fields.clone() }]),
        _ => Err("expected a pipeline".into()),
    }
}

fn named<'t>(ty: &'t Type, name: Option<&str>) -> Result<&'t Field, String> {
    let Type::Stage { fields } = ty else { return Err(format!("expected a stage, got {ty}")) };
    fields.iter().find(|f| Some(f.name.as_str()) == name).ok_or_else(|| {
        let names: Vec<_> = fields.iter().map(|f| f.name.as_str()).collect();
        format!("expected a field of {}, got `{}`", names.join(" "), name.unwrap_or(""))
    })
}

pub fn infer_field(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let stage = c.operands.first().ok_or("expected a stage")?;
    Ok(vec![named(stage, c.attrs.get("name").and_then(Attr::as_word))?.as_smem()])
}

pub fn verify_field(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let name = op.attr("name").and_then(Attr::as_word);
    if let Err(why) = named(func.ty(op.operands[0]), name) {
        errors.push(Code::E_NAME, why);
    }
}

pub fn verify_fill(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let name = op.attr("field").and_then(Attr::as_word);
    let field = match named(func.ty(op.operands[0]), name) {
        Ok(field) => field.as_smem(),
        Err(why) => {
            errors.push(Code::E_NAME, why);
            return;
        }
    };
    let view = func.ty(op.operands[1]);
    block(func, id, &field, view, errors);
    if let Type::View { privilege, .. } = view
        && (!privilege.reads() || privilege.reduces())
    {
        errors.push(
            Code::E_PRIVILEGE,
            format!("expected a source that may be read, got {}", privilege.name()),
        );
    }
}

/// The first iteration of a loop is only known inside one.
pub fn verify_release(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let in_loop = func.ancestors(op.block).iter().any(|&o| {
        matches!(func.ops[o].code, StagedOp::Tile(TileOp::For | TileOp::While) | StagedOp::Tiles)
    });
    if op.attr("unless_first").and_then(Attr::as_bool) == Some(true) && !in_loop {
        errors.structure("expected a loop around a release with `unless_first`");
    }
}
