"""One HTML page that answers: did it pay, and can it be trusted?"""
