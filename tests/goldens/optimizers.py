"""Lion and Muon in PyTorch: the papers' references, written out."""

import torch


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023."""

    def __init__(self, parameters, lr, betas, weight_decay=0.0):
        super().__init__(parameters, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), lr, decay = group["betas"], group["lr"], group["weight_decay"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                update = beta1 * m + (1 - beta1) * p.grad
                p.sub_(lr * (torch.sign(update) + decay * p))
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


class Muon(torch.optim.Optimizer):
    """Jordan's Muon with auxiliary Adam (github.com/KellerJordan/Muon, muon.py), in the type of the parameters where
    that rounds to bfloat16. Matrices get Muon, all others AdamW, as do matrices of groups with `adamw`. `match` has the
    factor of torch.optim.Muon's match_rms_adamw."""

    def __init__(self, parameters, lr, momentum, adamw_lr, betas, eps, weight_decay=0.0, match=False):
        super().__init__(parameters, dict(lr=lr, momentum=momentum, adamw_lr=adamw_lr, betas=betas, eps=eps,
                                          weight_decay=weight_decay, match=match, adamw=False))

    @staticmethod
    def orthogonal(g):
        x = g.mT if g.size(0) > g.size(1) else g
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.mT
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return x.mT if g.size(0) > g.size(1) else x

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), mu, decay = group["betas"], group["momentum"], group["weight_decay"]
            for p in group["params"]:
                state = self.state[p]
                state["step"] = t = state.get("step", 0) + 1
                m = state.setdefault("exp_avg", torch.zeros_like(p))
                if p.ndim == 2 and not group["adamw"]:
                    m.lerp_(p.grad, 1 - mu)
                    rows, columns = p.shape
                    factor = 0.2 * max(rows, columns)**0.5 if group["match"] else max(1, rows / columns)**0.5
                    p.mul_(1 - group["lr"] * decay)
                    p.sub_(group["lr"] * factor * self.orthogonal(p.grad.lerp(m, mu)))
                    continue
                v = state.setdefault("exp_avg_sq", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - beta1)
                v.lerp_(p.grad**2, 1 - beta2)
                p.mul_(1 - group["adamw_lr"] * decay)
                p.sub_(group["adamw_lr"] * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + group["eps"]))
