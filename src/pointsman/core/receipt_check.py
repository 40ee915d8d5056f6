"""Whether receipts are the ones that were written, one behind the other. Pure."""

import hmac

from pointsman.core.receipt import NO_RECEIPT, Receipt, ReceiptHead, digest_of_receipt

MOST_TOLD = 20
"""Problems that are told; all are counted."""


class ReceiptCheck:
    """Takes a chain's receipts in order of their numbers, from behind `after`. `kept`: a head that has to be in it."""

    def __init__(self, key: bytes, after: ReceiptHead = NO_RECEIPT, kept: ReceiptHead | None = None) -> None:
        self._key = key
        self._kept = kept if kept is not None and kept.sequence > after.sequence else None
        self.problems: list[str] = []
        self.problem_count = 0
        self.checked = 0
        self.head = after
        if kept is not None and kept.sequence == after.sequence and kept.digest != after.digest:
            self.tell(f"receipt {kept.sequence} is another than the head that was given")

    def tell(self, problem: str) -> None:
        """Note what does not fit."""
        self.problem_count += 1
        if len(self.problems) < MOST_TOLD:
            self.problems.append(problem)

    def receipt(self, receipt: Receipt) -> None:
        """Look at the next one."""
        self.checked += 1
        before, number = self.head, receipt.sequence
        if number != before.sequence + 1:
            self.tell(_gap(before.sequence, number))
        elif receipt.previous != before.digest:
            self.tell(f"receipt {number} does not follow the one before it: either was altered or replaced")
        if not hmac.compare_digest(digest_of_receipt(receipt, self._key), receipt.digest):
            self.tell(f"receipt {number} was altered")
        kept = self._kept
        if kept is not None and number == kept.sequence:
            self._kept = None
            if receipt.digest != kept.digest:
                self.tell(f"receipt {number} is another than the head that was given")
        self.head = receipt.head

    def end(self, noted: ReceiptHead) -> None:
        """There are no more; `noted` is what the database says the last one is."""
        if noted != self.head:
            self.tell(
                f"the receipts end with number {self.head.sequence}, and the database notes {noted.sequence} as the "
                "newest: some were removed from the end or put there"
            )
        if self._kept is not None:
            self.tell(
                f"receipt {self._kept.sequence}, the head that was given, is gone: the receipts end with number "
                f"{self.head.sequence}"
            )


def _gap(before: int, number: int) -> str:
    if number <= before:
        return f"receipt {number} stands behind {before}: it was put in or moved"
    missing = number - before - 1
    return f"{missing} receipt{'' if missing == 1 else 's'} before {number} {'is' if missing == 1 else 'are'} gone"
