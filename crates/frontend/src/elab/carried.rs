//! The variables that loops hand from one iteration to the next: which they are, the types they are
//! carried with, and what may not change in a loop.

use super::flow::RETURN;
use super::literal::{Weight, join};
use super::loops::Loop;
use super::tuple_parts::Parts;
use super::val::{Const, Val};
use super::{Elab, Env, Mode};
use crate::names::{assigned, loop_targets, read_outside_loops};
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::{Type, Value};
use tessera_tile::TileBuild;

/// A variable that a loop hands from one iteration to the next.
pub struct Carried {
    pub name: String,
    pub init: Value,
    /// Its value before the loop, where that is weakly typed.
    pub weak: Option<Val>,
    /// It has no value before the loop: only a `break` may give it one.
    pub hollow: bool,
    /// The variable of a loop inside, which had no value before: it is 0 until then.
    pub inner: bool,
}

/// Another try with a variable carried in a certain type, or, without one, a tuple in its parts.
pub struct Again {
    pub name: String,
    pub ty: Option<Type>,
}

impl Elab<'_> {
    /// The variables that the loop carries, with their values before it.
    pub fn carried(
        &mut self,
        l: &Loop<'_>,
        parts: Vec<String>,
        before: &Env,
        wanted: &[(String, Type)],
    ) -> Vec<Carried> {
        let mut out = Vec::new();
        for name in l.changed().into_iter().chain(parts) {
            let ty = wanted.iter().find(|(n, _)| *n == name).map(|(_, t)| t.clone());
            // The loop's own variable has a value in every iteration; see `Last::Carried`.
            if l.head.variable() == Some(&name) {
                continue;
            }
            let Some(v) = before.get(&name).cloned() else {
                // An inner loop's variable keeps its last value; it is 0 before the first.
                let inner = loop_targets(l.body).contains(&name) && self.is_read_after(&name);
                if let Some(ty) = ty.or(inner.then_some(Type::INDEX)) {
                    let hollow = !inner;
                    let init = self.b().constant(ty.clone(), Self::zero(ty.dtype()));
                    out.push(Carried { name, init, weak: None, hollow, inner });
                }
                continue;
            };
            let v = self.read_after(&v, false);
            let gives_way = match &v {
                Val::Rt(x) => self.weak.contains_key(x),
                Val::Const(Const::Str(_) | Const::DType(_)) => continue,
                Val::Const(_) | Val::Dim(_) | Val::Open(_) => true,
                _ => continue,
            };
            let init = match (&v, ty) {
                (_, Some(ty)) if gives_way => self.convert(&v, ty.dtype(), ty.shape()),
                (Val::Rt(x), _) => Some(*x),
                _ => self.runtime(&v),
            };
            let Some(init) = init else { continue };
            let weak = gives_way.then_some(v);
            out.push(Carried { name, init, weak, hollow: false, inner: false });
        }
        out
    }

    /// Whether the variable of a loop is read anywhere outside the loops that bind it.
    pub fn is_read_after(&self, name: &str) -> bool {
        read_outside_loops(&self.frame().parsed.def.body, name)
    }

    /// The value of a carried variable at the end of the body, in the type it is carried with.
    pub fn carry(&mut self, c: &Carried, end: &Val, loc: &Loc) -> Result<Value, Again> {
        let ty = self.ty(c.init).clone();
        let end = &self.read_after(end, false);
        match end {
            Val::Maybe(v, _) if *self.ty(*v) == ty => Ok(*v),
            Val::Rt(v) if *self.ty(*v) == ty => Ok(*v),
            Val::Rt(v) if c.weak.is_some() => {
                let got = self.ty(*v).clone();
                let shape = if got.rank() > ty.rank() { got.shape() } else { ty.shape() };
                let weight = c.weak.as_ref().and_then(|w| self.weight_of(w));
                // A stored type that holds the literal is kept; else the two are promoted.
                let dtype = match weight {
                    Some(Weight::WeakInt(lo, hi)) if got.dtype().is_int() => {
                        if super::literal::holds(got.dtype(), lo, hi) {
                            Some(got.dtype())
                        } else {
                            join(Weight::Strong(got.dtype()), Weight::WeakInt(lo, hi))
                                .and_then(Weight::dtype)
                        }
                    }
                    Some(_) if got.dtype().is_float() => Some(got.dtype()),
                    Some(Weight::WeakBool) => Some(got.dtype()),
                    Some(w) => join(Weight::Strong(got.dtype()), w).and_then(Weight::dtype),
                    None => None,
                };
                let dtype = dtype.unwrap_or(got.dtype());
                let joined = Type::value(shape.to_vec(), dtype);
                if joined != ty {
                    return Err(Again { name: c.name.clone(), ty: Some(joined) });
                }
                Ok(self.convert(end, dtype, shape).unwrap_or(c.init))
            }
            // An unrolled loop may have given it any type.
            Val::Rt(v) if c.inner && ty == Type::INDEX => {
                let got = self.ty(*v).clone();
                Err(Again { name: c.name.clone(), ty: Some(got) })
            }
            Val::Rt(v) => {
                let got = self.ty(*v).clone();
                let same_rank = got.rank() == ty.rank() && got.dtype() == ty.dtype();
                let open = got.static_shape().is_none() || ty.static_shape().is_none();
                if !(self.mode == Mode::Check && same_rank && open) {
                    let (a, b) = (super::describe_type(&ty), super::describe_type(&got));
                    self.changed_type(&c.name, &a, &b, loc);
                }
                Ok(c.init)
            }
            Val::Const(_) | Val::Dim(_) | Val::Open(_) => {
                Ok(self.convert(end, ty.dtype(), ty.shape()).unwrap_or(c.init))
            }
            Val::Clash(both) => {
                let both = both.clone();
                self.changed_type(&c.name, &both.0, &both.1, loc);
                Ok(c.init)
            }
            Val::Unset(_) if !c.hollow => {
                let at = self.assigned_at(&c.name);
                self.name_unset(&c.name, at);
                Ok(c.init)
            }
            _ => Ok(c.init),
        }
    }

    pub fn changed_type(&mut self, name: &str, a: &str, b: &str, loc: &Loc) {
        self.report(
            Diagnostic::new(
                Code::E_TYPE,
                format!("expected `{name}` to keep its type in the loop, got {a} before it and {b} after its body"),
            )
            .at(loc.clone())
            .help(format!("begin with the type it ends with, or cast: ts.tile.cast({name}, …)")),
        );
    }

    pub fn loop_variable_type(&mut self, name: &str, end: &Val) {
        if *end == Val::Poison {
            return;
        }
        let what = self.describe(end);
        self.error_help(
            Code::E_TYPE,
            format!(
                "expected the loop variable `{name}` to stay an integer of 64 bits, got {what}"
            ),
            "use another name in the body",
        );
    }

    /// A weakly typed variable that the body used with typed values, and that the loop never gave a
    /// type, is an i64 or an f32; the body is elaborated with that.
    pub fn settle_weak(
        &mut self,
        carried: &[Carried],
        args: &[(usize, Value)],
    ) -> Result<(), Again> {
        for (place, arg) in args {
            let c = &carried[*place];
            if self.weak_used.contains(arg) {
                let ty = self.ty(c.init).clone();
                return Err(Again { name: c.name.clone(), ty: Some(ty) });
            }
            self.weak.remove(arg);
        }
        Ok(())
    }

    /// What the body returns, where that need not be carried out of the loop.
    pub fn returned(&mut self, carried: &[Carried]) -> Result<Option<Val>, Again> {
        if carried.iter().any(|c| c.name == RETURN) {
            return Ok(None);
        }
        let value = self.env().get(RETURN).cloned();
        match &value {
            Some(Val::Rt(v)) => {
                let ty = self.ty(*v).clone();
                Err(Again { name: RETURN.into(), ty: Some(ty) })
            }
            Some(Val::Tuple(parts)) if parts.iter().any(|v| matches!(v, Val::Rt(_))) => {
                self.error_help(
                    Code::E_UNSUPPORTED,
                    "expected no tuple to be returned out of a loop",
                    "keep its parts in variables, leave the loop by `break`, and return them behind it",
                );
                Ok(Some(Val::Poison))
            }
            _ => Ok(value),
        }
    }

    /// Names that `else` and a body that breaks both bind have a value after the loop: they are
    /// carried, with the type they have where the loop is left.
    pub fn hollow_types(
        &mut self,
        l: &Loop<'_>,
        carried: &[Carried],
        before: &Env,
        breaks: &[Env],
    ) -> Result<(), Again> {
        if l.orelse.is_empty() || breaks.is_empty() || l.tests_inside() {
            return Ok(());
        }
        let wanted = assigned(l.orelse);
        for name in assigned(l.body).intersection(&wanted) {
            if before.contains_key(name) || carried.iter().any(|c| c.name == *name) {
                continue;
            }
            let mut met: Option<Type> = None;
            let mut all = true;
            for env in breaks {
                let ty = match env.get(name) {
                    Some(Val::Rt(v)) => Some(self.ty(*v).clone()),
                    Some(Val::Const(c)) => Self::default_dtype(c).map(Type::Scalar),
                    Some(Val::Dim(_) | Val::After(_)) => Some(Type::INDEX),
                    _ => None,
                };
                all &= ty.is_some() && (met.is_none() || met == ty);
                met = met.or(ty);
            }
            if let Some(ty) = met.filter(|_| all) {
                return Err(Again { name: name.clone(), ty: Some(ty) });
            }
        }
        Ok(())
    }

    /// What is no number may not change in a loop: which buffer a name means must be known.
    pub fn check_uncarried(
        &mut self,
        before: &Env,
        carried: &[Carried],
        changed: &BTreeSet<String>,
    ) -> Result<(), Again> {
        for name in changed {
            let (Some(old), Some(new)) = (before.get(name), self.env().get(name).cloned()) else {
                continue;
            };
            let poisoned = *old == Val::Poison || new == Val::Poison;
            // A name that an earlier loop or branch may have left without a value is the body's own.
            let unset =
                matches!(old, Val::Unset(_) | Val::Maybe(..) | Val::Clash(_) | Val::After(_));
            if !poisoned && !unset && !carried.iter().any(|c| c.name == *name) && *old != new {
                if matches!(old, Val::Tuple(_))
                    && Parts::of(old).is_some()
                    && Parts::of(&new).is_some()
                {
                    return Err(Again { name: name.clone(), ty: None });
                }
                self.error_help(
                    Code::E_UNSUPPORTED,
                    format!("expected `{name}` to mean the same in every iteration of the loop"),
                    "numbers, tiles and tuples of them may change in a loop; which array or function a name means may not",
                );
            }
        }
        Ok(())
    }
}
