//! Statements.

use super::Elab;
use super::expr::Truth;
use super::flow::{Exits, RETURN};
use super::literal::Weight;
use super::val::{BlockRef, Const, OpenKind, Reach, Val};
use ruff_python_ast::{Expr, ExprSubscript, Operator, Stmt, StmtReturn};
use ruff_text_size::Ranged;
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{Effects, OpId, Opcode, Type};
use tessera_numerics::DType;

impl Elab<'_> {
    /// A run of statements. After one that may leave (return, break, continue), the rest runs only
    /// where it did not.
    pub fn stmts(&mut self, list: &[Stmt]) -> Exits {
        for (place, stmt) in list.iter().enumerate() {
            if self.is_too_large() {
                break;
            }
            let exits = self.stmt(stmt);
            if exits.always() {
                return exits;
            }
            if let Some(left) = self.left(&exits) {
                let rest = &list[place + 1..];
                if rest.is_empty() {
                    return exits;
                }
                let later = self.rest(left, &exits, rest);
                return self.either(exits, later);
            }
        }
        Exits::none()
    }

    fn stmt(&mut self, stmt: &Stmt) -> Exits {
        self.loc = self.place(stmt.range());
        match stmt {
            Stmt::Pass(_) => {}
            Stmt::Expr(e) => {
                if !matches!(&*e.value, Expr::StringLiteral(_) | Expr::EllipsisLiteral(_)) {
                    self.expr(&e.value);
                }
            }
            Stmt::Assign(a) => {
                let value = self.expr(&a.value);
                for target in &a.targets {
                    self.assign(target, value.clone());
                }
            }
            Stmt::AnnAssign(a) => {
                if let Some(value) = &a.value {
                    let value = self.expr(value);
                    self.assign(&a.target, value);
                }
            }
            Stmt::AugAssign(a) => self.aug_assign(&a.target, a.op, &a.value),
            Stmt::If(s) => return self.if_stmt(s),
            Stmt::For(s) => return self.for_stmt(s),
            Stmt::While(s) => return self.while_stmt(s),
            Stmt::Return(s) => return self.return_stmt(s),
            Stmt::Break(_) if self.loop_depth > 0 => {
                let env = self.env().clone();
                self.breaks.push(env);
                return Exits::broken();
            }
            Stmt::Continue(_) if self.loop_depth > 0 => return Exits::continued(),
            Stmt::Break(_) | Stmt::Continue(_) => {
                self.error_help(
                    Code::E_SYNTAX,
                    "expected `break` and `continue` inside a loop",
                    "to end the kernel for this group or lane write `return`",
                );
            }
            Stmt::Assert(s) => {
                let cond = match self.condition(&s.test) {
                    Some(Truth::Known(b)) => Val::Const(Const::Bool(b)),
                    Some(Truth::Open) => Val::Open(OpenKind::Bool),
                    Some(Truth::Run(c)) => Val::Rt(c),
                    None => Val::Poison,
                };
                let text = s.msg.as_ref().map_or(Val::None, |m| self.expr(m));
                self.assertion(&cond, &text);
            }
            Stmt::FunctionDef(f) => {
                self.error_help(
                    Code::E_SYNTAX,
                    format!("a function inside a kernel is not supported: `{}`", f.name),
                    "define it outside the kernel with @ts.func and call it here",
                );
            }
            other => {
                let usual = "a kernel is made of assignments, calls, if, for, while and return";
                let (what, write) = match other {
                    Stmt::With(_) => ("`with`", usual),
                    Stmt::Try(_) => ("`try`", "nothing raises inside a kernel: test with `if`"),
                    Stmt::Raise(_) => ("`raise`", "write `assert condition, \"text\"`"),
                    Stmt::Import(_) | Stmt::ImportFrom(_) => {
                        ("`import`", "import at the top of the file")
                    }
                    Stmt::ClassDef(_) => ("`class`", "define it outside the kernel"),
                    Stmt::Match(_) => ("`match`", "write `if`, `elif` and `else`"),
                    Stmt::Global(_) | Stmt::Nonlocal(_) => {
                        ("`global`", "a kernel gives results in arrays: store into a parameter")
                    }
                    Stmt::Delete(_) => ("`del`", "leave it out: names are not memory here"),
                    _ => ("this statement", usual),
                };
                self.error_help(
                    Code::E_SYNTAX,
                    format!("{what} is not part of the kernel language"),
                    write,
                );
            }
        }
        Exits::none()
    }

    /// Binds or stores.
    pub fn assign(&mut self, target: &Expr, value: Val) {
        match target {
            Expr::Name(n) => {
                let value = match value {
                    Val::Origin(name) => self.error_help(
                        Code::E_NAME,
                        format!("`{name}` is not defined here"),
                        format!("give it a value first: `{name} = 0`"),
                    ),
                    other => other,
                };
                let named = match &value {
                    Val::Rt(v) => Some(*v),
                    Val::Buf { buf, .. } => Some(*buf),
                    _ => None,
                };
                if let Some(v) = named
                    && self.func.name_of(v).is_none()
                {
                    self.func.set_name(v, n.id.as_str());
                }
                let at = self.place(n.range());
                if let Some(frame) = self.frames.last_mut() {
                    frame.assigned.insert(n.id.to_string(), at);
                }
                self.env().insert(n.id.to_string(), value);
            }
            Expr::Tuple(t) => self.unpack(&t.elts, value),
            Expr::List(t) => self.unpack(&t.elts, value),
            Expr::Subscript(s) => {
                let here = self.place(s.range());
                let outer = std::mem::replace(&mut self.loc, here);
                let place = self.target(s);
                self.loc = outer;
                if let Some(block) = place {
                    self.store_block(&block, &value, None);
                }
            }
            Expr::Attribute(a) => {
                let base = self.expr(&a.value);
                self.loc = self.place(a.range());
                let Val::Record(record) = base else { return self.no_target() };
                self.error_help(
                    Code::E_TYPE,
                    format!("expected a place to assign to, got the field `{}` of the record `{}`", a.attr, record.class),
                    "fields of a record are constants: assign to a variable, or into the array: `p.x[i] = v`",
                );
            }
            other => {
                self.loc = self.place(other.range());
                self.no_target();
            }
        }
    }

    fn no_target(&mut self) {
        self.error_help(
            Code::E_SYNTAX,
            "expected a name or a subscript to assign to",
            "assign to a variable, or to a place of an array: `y[i] = v`",
        );
    }

    /// The place that a subscript names as the target of an assignment; `None` where it is none.
    fn target(&mut self, s: &ExprSubscript) -> Option<Box<BlockRef>> {
        let base = self.expr(&s.value);
        let memory = matches!(
            base,
            Val::View(_)
                | Val::ViewT(_)
                | Val::Buf { transposed: false, .. }
                | Val::Local { .. }
                | Val::Poison
        );
        if !memory {
            let what = self.describe(&base);
            self.error_help(
                Code::E_TYPE,
                format!("expected a tensor or shared buffer to store into, got {what}"),
                "tiles and elements are values: build a new one with ts.tile.where, or store into a \
                 parameter; a helper that changes an array takes the array and the index",
            );
            return None;
        }
        match self.subscript_of(base, s) {
            Val::Block(block) => Some(block),
            _ => None,
        }
    }

    fn unpack(&mut self, targets: &[Expr], value: Val) {
        let parts = match value {
            Val::Tuple(parts) if parts.len() == targets.len() => parts,
            Val::Poison => vec![Val::Poison; targets.len()],
            other => {
                let what = self.describe(&other);
                self.error_help(
                    Code::E_TYPE,
                    format!("expected a tuple of {}, got {what}", targets.len()),
                    "give one value for each name",
                );
                vec![Val::Poison; targets.len()]
            }
        };
        for (target, part) in targets.iter().zip(parts) {
            self.assign(target, part);
        }
    }

    fn aug_assign(&mut self, target: &Expr, op: Operator, value: &Expr) {
        match target {
            Expr::Name(n) => {
                let old = self.expr(target);
                let new = self.expr(value);
                let out = self.operator(op, old, new);
                let _ = n;
                self.assign(target, out);
            }
            Expr::Subscript(s) => {
                let stmt = self.loc.clone();
                self.loc = self.place(s.range());
                let Some(block) = self.target(s) else {
                    self.expr(value);
                    return;
                };
                self.loc = stmt.clone();
                let ty = self.ty(block.mem).clone();
                let folds = match &ty {
                    Type::View { privilege, .. } => privilege.reduces(),
                    _ => false,
                };
                // Every contribution at an index tile counts, and folds are one step: both read
                // what is there when they write.
                let gathers = block.reach.contains(&Reach::Gather);
                let step = match op {
                    Operator::Add if folds || gathers => Some("sum"),
                    Operator::Sub if gathers => Some("sub"),
                    Operator::BitAnd if gathers => Some("and"),
                    Operator::BitOr if gathers => Some("or"),
                    Operator::BitXor if gathers => Some("xor"),
                    _ => None,
                };
                if let Some(step) = step {
                    let value = self.expr(value);
                    self.loc = stmt;
                    if self.is_contribution(&block, &value) {
                        self.accumulate_block(&block, &value, step);
                    }
                    return;
                }
                // The old contents are read first; where nothing in between writes there, reading
                // and adding is one op.
                let mark = self.func.blocks[self.block].ops.len();
                let Some(old) = self.load_block(&block) else { return };
                // By their ids: origins are put at the top of the function.
                let read: Vec<OpId> = self.func.blocks[self.block].ops[mark..].to_vec();
                let new = self.expr(value);
                self.loc = stmt;
                let is_view = matches!(&ty, Type::View { elem, .. } if !elem.packed);
                let sums = self.added_in(&ty, &new) == Some(Self::sum_type(&ty));
                let fused = op == Operator::Add && is_view && sums;
                if fused && !self.writes_after(&read, block.mem) {
                    self.func.blocks[self.block].ops.retain(|op| !read.contains(op));
                    self.accumulate_block(&block, &new, "sum");
                    return;
                }
                let new = self.operator(op, Val::Rt(old), new);
                if new != Val::Poison {
                    self.store_block(&block, &new, None);
                }
            }
            other => {
                self.loc = self.place(other.range());
                self.error_help(
                    Code::E_SYNTAX,
                    "expected a name or a subscript to assign to",
                    "assign to a variable, or to a place of an array: `y[i] = v`",
                );
            }
        }
    }

    /// The dtype in which an element of an array and a value are added.
    fn added_in(&self, mem: &Type, value: &Val) -> Option<DType> {
        super::literal::join(Weight::Strong(mem.dtype()), self.weight_of(value)?)?.dtype()
    }

    /// Whether a value may be folded into elements of an array one by one: converting it first must
    /// not change the sums. Integers wrap alike in all widths.
    fn is_contribution(&mut self, block: &BlockRef, value: &Val) -> bool {
        let mem = self.ty(block.mem).clone();
        let sum = Self::sum_type(&mem);
        let Some(weight) = self.weight_of(value) else { return true };
        let open = matches!(value, Val::Open(_));
        let fits = match self.added_in(&mem, value) {
            Some(met) => met == sum || (met.is_int() && sum.is_int()),
            // A literal that no type holds is reported where it is converted.
            None => matches!(weight, Weight::WeakInt(..)),
        };
        if !fits && !open {
            let what = self.describe(value);
            let (name, own) =
                (self.func.name_of(block.mem).unwrap_or("buffer").to_string(), mem.dtype());
            self.error_help(
                Code::E_TYPE,
                format!("expected a contribution of dtype {sum} to elements of `{name}`, which are {own}, got {what}"),
                format!("cast it: ts.tile.cast(v, ts.{sum})"),
            );
        }
        fits || open
    }

    /// Whether an op of the current block behind these may write an array.
    fn writes_after(&self, before: &[OpId], mem: tessera_ir::Value) -> bool {
        let mut found = false;
        let ops = &self.func.blocks[self.block].ops;
        let from = ops.iter().rposition(|op| before.contains(op)).map_or(0, |at| at + 1);
        for &id in &ops[from..] {
            let mut visit = |op: &tessera_ir::Op<tessera_tile::Tile>| {
                let writes = matches!(
                    op.code.info().effects,
                    Effects::Write | Effects::ReadWrite | Effects::Sync
                );
                found |= writes && op.operands.first().is_none_or(|&m| m == mem);
            };
            visit(&self.func.ops[id]);
            for &region in &self.func.ops[id].regions {
                self.func.walk_block(region, &mut |inner| visit(&self.func.ops[inner]));
            }
        }
        found
    }

    fn return_stmt(&mut self, s: &StmtReturn) -> Exits {
        if !self.frame().is_kernel {
            let value = s.value.as_ref().map_or(Val::None, |e| self.expr(e));
            let value = self.read_after(&value, true);
            self.env().insert(RETURN.into(), value);
            return Exits::returned();
        }
        let Some(expr) = &s.value else { return Exits::returned() };
        let items: Vec<&Expr> = match &**expr {
            Expr::Tuple(t) => t.elts.iter().collect(),
            one => vec![one],
        };
        let mut returned = Vec::new();
        for item in items {
            let v = self.expr(item);
            let place = match &v {
                Val::View(view) => {
                    let name = self.func.name_of(*view).unwrap_or_default();
                    self.decl.params.iter().position(|p| p.name == name)
                }
                Val::Poison | Val::None => continue,
                _ => None,
            };
            match place {
                Some(place) => returned.push(place),
                None => {
                    // While checking, the length of a list stands for any.
                    let what = match &v {
                        Val::Tuple(items) if items.iter().all(|v| matches!(v, Val::View(_))) => {
                            "a list of arrays".to_string()
                        }
                        v => self.describe(v),
                    };
                    let error = Diagnostic::new(
                        Code::E_GRAPH_INVALID,
                        format!("expected a kernel to return its parameters only, got {what}"),
                    )
                    .at(self.place(item.range()));
                    if matches!(v, Val::Record(_) | Val::Tuple(_)) {
                        self.report(
                            error
                                .help("return the arrays themselves: `return p.y`, `return xs[0]`"),
                        );
                        continue;
                    }
                    self.report(
                        error
                        .note("each group computes one block; what it returns must be stored in an array that has all blocks")
                        .help(
                            "add a parameter for the result, store each block into it (as in \
                             `O[bh, q0:q0 + BM, :] = …`) and `return O`",
                        ),
                    );
                }
            }
        }
        match &self.returns {
            Some(before) if *before != returned => {
                self.error_help(
                    Code::E_GRAPH_INVALID,
                    "expected every `return` to return the same parameters",
                    "write one `return` at the end of the kernel",
                );
            }
            _ => self.returns = Some(returned),
        }
        Exits::returned()
    }
}
