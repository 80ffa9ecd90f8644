//! Kernel calls: which arguments are written, and that old versions are not used again.

use crate::Graph;
use crate::ops::control_ops::verify_sharding;
use crate::rule::{Refusal, Rule, Ruled, Site};
use std::collections::BTreeMap;
use tessera_diag::Code;
use tessera_ir::{Attr, Func, OpErrors, OpId, Privilege, Type};

/// One entry for each word; `None` where the word is no privilege.
pub fn privileges(attr: Option<&Attr>) -> Vec<Option<Privilege>> {
    let words = attr.and_then(Attr::as_list).unwrap_or_default();
    // The short names that Python accepts have one spelling in text.
    let exact = |w: &str| Privilege::parse(w).filter(|p| p.name() == w);
    words.iter().map(|w| w.as_word().and_then(exact)).collect()
}

/// The arguments of a call whose contents are not read: memory for them is enough.
pub fn fresh(attr: Option<&Attr>) -> Vec<usize> {
    let listed = attr.and_then(Attr::as_ints).unwrap_or_default();
    listed.iter().filter_map(|&i| usize::try_from(i).ok()).collect()
}

pub struct Call;

impl Rule for Call {
    fn types(s: &Site<'_>) -> Ruled {
        let values = s.group("values");
        let privileges = privileges(s.attr("privileges"));
        if privileges.len() != values.len() {
            return Err(Refusal::structure(format!(
                "expected {} privileges, got {}",
                values.len(),
                privileges.len()
            )));
        }
        let written =
            values.iter().zip(privileges).filter(|(_, p)| p.is_some_and(Privilege::writes));
        Ok(written.map(|(ty, _)| ty.clone()).collect())
    }
}

pub fn verify_call(func: &Func<Graph>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let privileges = privileges(op.attr("privileges"));
    if privileges.len() != op.operands.len() {
        errors.structure(format!(
            "expected one privilege for each of {} arguments, got {}",
            op.operands.len(),
            privileges.len()
        ));
        return;
    }
    let words = op.attr("privileges").and_then(Attr::as_list).unwrap_or_default();
    for (word, privilege) in words.iter().zip(&privileges) {
        if privilege.is_none() {
            let all: Vec<_> = Privilege::ALL.iter().map(|p| p.name()).collect();
            errors.structure(format!("expected a privilege of {}, got `{word}`", all.join(" ")));
        }
    }
    let writes = |p: Option<Privilege>| p.is_some_and(Privilege::writes);
    for (i, (&value, &privilege)) in op.operands.iter().zip(&privileges).enumerate() {
        let name = func.name_of(value).unwrap_or("argument");
        if writes(privilege) && matches!(func.ty(value), Type::Scalar(_)) {
            errors.push(Code::E_PRIVILEGE, format!("expected the scalar %{name} to be read only"));
        }
        let again = op.operands[..i].iter().zip(&privileges).find(|(v, _)| **v == value);
        if again.is_some_and(|(_, &p)| writes(p) || writes(privilege)) {
            errors.push(Code::E_PRIVILEGE, format!("expected %{name} once, for it is written"));
        }
    }
    for &arg in op.attr("fresh").and_then(Attr::as_ints).unwrap_or_default().iter() {
        let discards = usize::try_from(arg).ok().and_then(|i| privileges.get(i).copied().flatten());
        if discards != Some(Privilege::Write) {
            errors.structure(format!("expected `fresh` to name arguments of `write`, got {arg}"));
        }
    }
    verify_sharding(func, id, errors);
    let written = privileges.iter().filter(|p| writes(**p)).count();
    if op.results.len() != written {
        errors.structure(format!(
            "expected a result for each of {written} written arguments, got {}",
            op.results.len()
        ));
    }
}

/// A call uses up the versions it writes.
pub fn verify_versions(func: &Func<Graph>, errors: &mut OpErrors) {
    let mut written = BTreeMap::new();
    for id in func.walk() {
        errors.at_op(func, id);
        let op = &func.ops[id];
        for value in &op.operands {
            if let Some(kernel) = written.get(value) {
                let name = func.name_of(*value).unwrap_or("array");
                errors.structure(format!(
                    "expected the newest version of %{name}, got the one that @{kernel} wrote over"
                ));
            }
        }
        let kernel = op.attr("kernel").and_then(Attr::as_ref_name).unwrap_or_default();
        for (value, privilege) in op.operands.iter().zip(privileges(op.attr("privileges"))) {
            if privilege.is_some_and(Privilege::writes) {
                written.insert(*value, kernel);
            }
        }
    }
}
